"""The public test kit: a scripted model that stands in for the model APIs of the real CLIs."""
