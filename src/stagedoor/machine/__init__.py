"""What differs from one machine to the next, behind one name each: where folders lie, how a file is opened so that it
is surely below another, and which names mean the same folder."""
