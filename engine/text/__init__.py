"""Text in and out of a model: tokens, the chat format, reasoning and tool calls."""
