"""Array API namespaces: how the namespace of a tensor is found, and the one for TensorFlow."""
