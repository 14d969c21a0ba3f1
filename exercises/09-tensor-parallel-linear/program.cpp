// Reads the layers, x and dy, calls your functions on this rank, and returns what they gave.
#include "baton/exercise/program.h"

#include "exercise.h"

namespace {

Matrix read_matrix(baton::exercise::Reader& given) {
  Matrix matrix;
  matrix.rows = static_cast<int>(given.integer());
  matrix.columns = static_cast<int>(given.integer());
  matrix.values = given.floats();
  return matrix;
}

void write(baton::exercise::Writer& out, const Layers& layers) {
  out.add(layers.first.columns).add(layers.first.values).add(layers.bias).add(layers.second.values).add(layers.last_bias);
}

}  // namespace

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    const auto rank = static_cast<int>(given.integer());
    Peers peers(rank, static_cast<int>(given.integer()));
    Layers whole;
    whole.first = read_matrix(given);
    whole.bias = given.floats();
    whole.second = read_matrix(given);
    whole.last_bias = given.floats();
    const Matrix x = read_matrix(given);
    const Matrix dy = read_matrix(given);
    const Layers part = take_part(whole, peers.rank(), peers.size());
    const Matrix y = forward(peers, part, x);
    const Gradients gradients = backward(peers, part, x, dy);
    write(out, part);
    out.add(y.values);
    write(out, gradients.part);
    out.add(gradients.x.values);
  });
}
