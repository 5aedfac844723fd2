"""Coded errors: the text of each is what an API user reads, so it says what is wrong and what to do.

E1xxx: the request cannot be answered as it is. E20xx: the engine failed while answering. E21xx: it did not start.
The codes are stable, the sentences may be reworded.
"""


class CodedError(Exception):
    """An error with a stable code.

    `str(error)` is "CODE Name: what is wrong. What to do." on one line.
    """

    def __init__(self, code: str, name: str, what: str, do: str = "") -> None:
        self.code = code
        self.name = name
        self.what = what
        self.do = do
        super().__init__(" ".join(f"{code} {name}: {what} {do}".split()))


class InputError(CodedError):
    """E1xxx: the caller must change the request."""


class EngineError(CodedError):
    """E2xxx: the engine, or the container around it, must change."""


def missing_input(what: str, do: str) -> InputError:
    return InputError("E1001", "MissingInput", what, do)


def conflicting_inputs(what: str, do: str) -> InputError:
    return InputError("E1002", "ConflictingInputs", what, do)


def malformed_input(what: str, do: str = "") -> InputError:
    return InputError("E1003", "MalformedInput", what, do)


def prompt_too_long(prompt_tokens: int | None, context: int) -> InputError:
    counted = f"{prompt_tokens} tokens" if prompt_tokens is not None else "too many tokens"
    return InputError(
        "E1004",
        "PromptTooLong",
        f"the prompt has {counted}, the context holds {context}, and at least one must be left for the answer.",
        "Shorten the prompt.",
    )


def max_tokens_too_large(prompt_tokens: int | None, max_tokens: int, context: int) -> InputError:
    if prompt_tokens is None:
        what = f"max_tokens is {max_tokens}, which is more than the context of {context} tokens can hold."
        return InputError("E1005", "MaxTokensTooLarge", what, "Lower max_tokens.")
    return InputError(
        "E1005",
        "MaxTokensTooLarge",
        f"the prompt has {prompt_tokens} tokens and max_tokens is {max_tokens}, the context holds {context} in all.",
        f"Set max_tokens to {context - prompt_tokens} or less, or shorten the prompt.",
    )


def special_token(where: str, token: str) -> InputError:
    return InputError(
        "E1006",
        "SpecialToken",
        f"{where} contains {token!r}, which this model reads as a control token.",
        "Take it out, or write it differently.",
    )


def unsupported_content(where: str, kind: str) -> InputError:
    return InputError(
        "E1007",
        "UnsupportedContent",
        f"{where} is of type {kind!r}, and this model takes text only.",
        'Send text: a string, or parts of the form {"type": "text", "text": "…"}.',
    )


def out_of_range(what: str, do: str = "") -> InputError:
    return InputError("E1008", "OutOfRange", what, do)


def not_text(where: str) -> InputError:
    return InputError(
        "E1009",
        "NotText",
        f"{where} holds half of a surrogate pair, which is not a character.",
        "Send valid Unicode text.",
    )


def too_large(where: str, size: int, limit: int, unit: str = "characters") -> InputError:
    what = f"{where} has {size} {unit}, the limit is {limit}."
    return InputError("E1010", "TooLarge", what, "Shorten it.")


def refused(message: str) -> InputError:
    return InputError(
        "E1000", "Refused", f"the engine refused the request: {message.rstrip('.')}.", "Correct the inputs."
    )


def engine_died(status: str, log: str) -> EngineError:
    return EngineError(
        "E2002",
        "EngineDied",
        f"the engine process ended ({status}).",
        f"Send the request to a fresh container; the cause is in the container's log and in {log}.",
    )


def engine_hung(seconds: float) -> EngineError:
    return EngineError(
        "E2003",
        "EngineHung",
        f"the engine gave no token for {seconds:.0f} s and does not answer a probe, so it was ended.",
        "Send the request to a fresh container.",
    )


def engine_failed(message: str) -> EngineError:
    return EngineError(
        "E2004",
        "EngineFailed",
        f"the engine failed on this request: {message.rstrip('.')}.",
        "Try again; if it fails again, look into the engine's log.",
    )


def output_cut(max_tokens: int | None) -> EngineError:
    limit = "the context was full" if max_tokens is None else f"max_tokens ({max_tokens}) was reached"
    return EngineError(
        "E2006",
        "OutputCut",
        f"the answer is not what was asked for: {limit} before it was complete.",
        "Raise max_tokens, or ask for less.",
    )


def constraint_slow(seconds: float) -> InputError:
    return InputError(
        "E1011",
        "ConstraintTooComplex",
        f"the engine gave no token within {seconds:.0f} s under this constraint.",
        "Simplify the schema, the regular expression or the choices.",
    )


def stream_broken(what: str) -> EngineError:
    return EngineError("E2005", "StreamBroken", f"the answer is incomplete: {what}.", "Try again.")
