#pragma once

#include <vector>

#include "baton/exercise/peers.h"

/// `peers.rank()`, `peers.size()` and `sums = peers.all_reduce(values)`: see baton/exercise/peers.h.
using baton::exercise::Peers;

/// Numbers in rows, one row after the other.
struct Matrix {
  int rows = 0;
  int columns = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(int r, int c) : rows(r), columns(c), values(static_cast<std::size_t>(r) * static_cast<std::size_t>(c)) {}
  float& at(int row, int column) { return values[static_cast<std::size_t>(row) * columns + column]; }
  float at(int row, int column) const { return values[static_cast<std::size_t>(row) * columns + column]; }
};

/// y = relu(x · first + bias) · second + last_bias, for x of (batch, in), first of (in, hidden), second of (hidden, out). A rank's
/// part of the two layers has the same form, and fewer hidden features.
struct Layers {
  Matrix first;
  std::vector<float> bias;
  Matrix second;
  std::vector<float> last_bias;
};

/// The part of the layers that this rank holds: consecutive hidden features, the first ranks one more if they do not come out even.
/// Every rank holds the whole of last_bias.
Layers take_part(const Layers& whole, int rank, int size);

/// y on every rank, from the parts: with one all_reduce of the size of y.
Matrix forward(Peers& peers, const Layers& part, const Matrix& x);

/// The results of the backward on a rank: the gradients of its part, and on every rank the whole gradient of x, with one all_reduce
/// of the size of x. `dy` is the gradient of y.
struct Gradients {
  Layers part;
  Matrix x;
};
Gradients backward(Peers& peers, const Layers& part, const Matrix& x, const Matrix& dy);
