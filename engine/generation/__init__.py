"""Reading a prompt and writing an answer, for any `LanguageModel`."""
