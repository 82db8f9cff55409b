"""Every exception Stagedoor raises.

StagedoorError
├── LaunchError                 the agent could not be started
│   ├── NotInstalled            its program was not found (says where we looked and how to install it)
│   ├── UnsupportedVersion      too old
│   ├── NotSignedIn             no usable credentials
│   └── UntrustedProject        something of the project would run, and nobody trusts the folder
├── TransportError              the connection to the agent broke
│   ├── ProcessExited           it ended while something was still expected of it
│   ├── ConnectionLost          a socket or stream closed early
│   └── MessageTooLarge         one message was over the configured bound
├── ProtocolError               somebody broke the protocol
│   ├── LocalProtocolError      we or the caller did
│   └── RemoteProtocolError     the agent did
├── AgentRefused                the agent answered a request with an error
├── PolicyError                 a policy file is wrong (says where, and what was probably meant)
├── ConfigError                 the server's configuration is wrong (all that is, with its lines)
├── NotSupported                this agent or driver cannot do that (the catalog says so)
└── ServiceError                a verb of the service could not be carried out
    ├── SessionNotFound
    ├── SessionEnded
    ├── SessionRunning          that can be done only when it has ended
    ├── AlreadyAnswered
    ├── EventsRemoved           events that were asked for are no longer kept
    ├── NotAllowed
    ├── BadRequest              what was asked for makes no sense (says which part)
    ├── TooMany                 a limit of the server is reached; try again later
    ├── WorkerAway              the machine that must do it cannot be reached just now
    ├── UnknownOutcome          a machine stopped while it did it; nobody can say whether it was done
    └── StoreError              the log cannot be used
        ├── StoreBroken         it cannot be read or written
        ├── StoreTooNew         a newer Stagedoor wrote it
        ├── StoreAway           the database it is in cannot be reached just now
        ├── Fenced              this session belongs to somebody else by now; the log itself is sound
        └── SequenceConflict    a record does not follow the last one stored; the log itself is sound
"""

from __future__ import annotations

from collections.abc import Sequence


class StagedoorError(Exception):
    """The root: ``except stagedoor.StagedoorError`` catches everything of ours and nothing else."""


class LaunchError(StagedoorError):
    """The agent could not be started."""


class NotInstalled(LaunchError):
    """The agent's program was not found."""


class UnsupportedVersion(LaunchError):
    """The agent's program is too old."""


class NotSignedIn(LaunchError):
    """The agent has no usable credentials."""


class UntrustedProject(LaunchError):
    """Something of the project would run whatever the agent is told, and nobody trusts the folder."""


class TransportError(StagedoorError):
    """The connection to the agent broke."""


class ProcessExited(TransportError):
    """The process ended while something was still expected of it."""

    def __init__(self, message: str, *, code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.stderr = stderr


class ConnectionLost(TransportError):
    """A socket or stream closed early."""


class MessageTooLarge(TransportError):
    """One message was over the configured bound."""


class ProtocolError(StagedoorError):
    """Somebody broke the protocol."""


class LocalProtocolError(ProtocolError):
    """We or the caller broke the protocol."""


class RemoteProtocolError(ProtocolError):
    """The agent broke the protocol."""


class AgentRefused(StagedoorError):
    """The agent answered a request with an error."""

    def __init__(self, message: str, *, code: int | str | None = None) -> None:
        super().__init__(message)
        self.code = code


class PolicyError(StagedoorError):
    """A policy file is wrong; nothing in it counts until it is mended."""


class ConfigError(StagedoorError):
    """The server's configuration is wrong; it does not start until it is mended."""


class NotSupported(StagedoorError):
    """This agent or driver cannot do that."""


class ServiceError(StagedoorError):
    """A verb of the service could not be carried out."""


class SessionNotFound(ServiceError):
    """No session has that id."""


class SessionEnded(ServiceError):
    """The session is over and takes no more input."""


class SessionRunning(ServiceError):
    """The session has not ended, and what was asked for needs that."""


class AlreadyAnswered(ServiceError):
    """Somebody else answered that question first, or its time was up."""


class NotAllowed(ServiceError):
    """The caller may not do that."""


class BadRequest(ServiceError):
    """What was asked for makes no sense."""


class TooMany(ServiceError):
    """A limit of the server is reached."""


class WorkerAway(ServiceError):
    """The machine that must do it cannot be reached just now, or no machine can."""


class UnknownOutcome(ServiceError):
    """A machine stopped while it did what was asked for: whether it was done, nobody can say."""


class EventsRemoved(ServiceError):
    """Events that were asked for are no longer kept."""


class StoreError(ServiceError):
    """The log cannot be used."""


class StoreBroken(StoreError):
    """The log cannot be read or written; what was to be kept is not."""


class StoreTooNew(StoreError):
    """A newer Stagedoor wrote the log."""


class StoreAway(StoreError):
    """The database that the log is in cannot be reached just now; try again when it is back."""


class Fenced(StoreError):
    """The session belongs to somebody else by now: nothing of the write was kept. The log itself is sound."""


class SequenceConflict(StoreError):
    """A record does not follow the last one stored: nothing of the write was kept. The log itself is sound."""


def unknown_model(model: str, offered: Sequence[str], provider: str = "") -> str:
    """The one sentence about a model that an agent does not have."""
    few = ", ".join(offered[:20]) + (" …" if len(offered) > 20 else "")
    return f"unknown model {model!r}{f' of {provider}' if provider else ''}. Available: {few or 'none'}"
