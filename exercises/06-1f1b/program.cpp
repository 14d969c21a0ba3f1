// Reads the number of devices and of micro-batches, calls your function, and returns its rows.
#include "baton/exercise/program.h"

#include "exercise.h"

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    const auto devices = static_cast<int>(given.integer());
    const std::vector<std::vector<Action>> rows = one_forward_one_backward(devices, static_cast<int>(given.integer()));
    out.add(static_cast<int>(rows.size()));
    for (const std::vector<Action>& row : rows) {
      out.add(static_cast<int>(row.size()));
      for (const Action& action : row) {
        out.add(std::string(1, action.kind)).add(action.micro_batch);
      }
    }
  });
}
