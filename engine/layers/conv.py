"""The short causal convolution in front of KDA."""

from dataclasses import dataclass

import mlx.core as mx

from engine.layers.activations import silu


@dataclass(frozen=True)
class ShortConvolution:
    """A depthwise causal convolution over time, then silu.

    taps: [K, C]; the last tap multiplies the current token.
    """

    taps: mx.array

    def __call__(self, u: mx.array, window: mx.array, valid: int) -> tuple[mx.array, mx.array]:
        """Continue from `window`.

        Args:
            u: inputs [B, T, C]; rows from `valid` on are padding.
            window: [B, K-1, C], the inputs before u; zeros for a new sequence.
            valid: how many rows of u are tokens.

        Returns:
            y [B, T, C] and the next window, the last K-1 inputs before row `valid`. Correct for any
            `valid` >= 1, also below K-1. The window is a copy, so it does not keep u alive.
        """
        kernel, length = self.taps.shape[0], u.shape[1]
        inputs = mx.concatenate([window, u], axis=1)
        if length == 1:
            y = (inputs * self.taps).sum(axis=1, keepdims=True)
        else:
            y = inputs[:, kernel - 1 :] * self.taps[kernel - 1]
            for tap in range(kernel - 1):
                y = y + inputs[:, tap : tap + length] * self.taps[tap]
        return silu(y, few=length == 1), mx.contiguous(inputs[:, valid : valid + kernel - 1])
