"""What operations answer, as an example each, in the OpenAPI document."""
