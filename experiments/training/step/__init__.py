"""One step of training: forward and backward pass in micro-batches, optimizer, precision, guard, torch.compile."""
