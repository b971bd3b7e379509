"""What the native half offers; import the façades (`runlane.sse`, `runlane.canonical`, ...) instead.

Handwritten, one section per façade, and held to the binary by stubtest.
"""

__all__ = ["NativeError"]

class NativeError(Exception):
    """A refusal of the native half; a façade translates it by its code into a type of `runlane.errors`.

    Its ``args`` are ``(code, message, detail)``: the dotted code, one sentence for people, and a value that the
    code defines (an offset, a path, a limit) or None.
    """
