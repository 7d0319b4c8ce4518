"""The family of models that everything here is about: one shape, told once."""
