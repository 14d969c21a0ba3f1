// Reads a case, calls your function, and returns what it gave.
#include "baton/exercise/program.h"

#include "exercise.h"

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    const auto devices = static_cast<int>(given.integer());
    out.add(spread(given.reals(), devices));
  });
}
