"""Bodies that come in, objects that go out: a module for each resource."""
