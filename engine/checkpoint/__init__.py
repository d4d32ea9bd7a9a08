"""Reading a checkpoint folder: config, tensor files, quantization."""
