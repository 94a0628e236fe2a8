"""Matrix mechanisms: weighted sums of cells, measured with Gaussian noise."""
