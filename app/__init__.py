"""The Qt front end. It knows the engine only through `engine.api` and `engine.Engine`."""
