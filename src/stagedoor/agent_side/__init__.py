"""The agent's side of the Agent Client Protocol: what an agent needs to be driven by an editor, whoever it is.

``link`` carries requests in and answers and notifications out, ``params`` is what each method takes. The embedded agent
(``understudy``) and the door for editors (``server.acp``) are made of it.
"""
