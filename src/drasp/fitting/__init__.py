"""The model's answers on pools of inputs, and programs fitted to them."""
