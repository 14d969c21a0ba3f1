// Trains with your scaler: gradients come in, are scaled and rounded as 16-bit floats overflow, and go to your function.
#include "baton/exercise/program.h"

#include <cmath>
#include <limits>

#include "exercise.h"

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    Settings settings;
    settings.initial = static_cast<float>(given.real());
    settings.growth_interval = static_cast<int>(given.integer());
    const std::size_t steps = given.count();
    LossScaler scaler(settings);
    out.add(static_cast<int>(steps));
    for (std::size_t s = 0; s < steps; ++s) {
      std::vector<float> gradients = given.floats();
      const float scale = scaler.scale();
      for (float& gradient : gradients) {
        gradient *= scale;
        if (std::abs(gradient) > 65504.0F) {  // the largest 16-bit float
          gradient = std::copysign(std::numeric_limits<float>::infinity(), gradient);
        }
      }
      const bool stepped = scaler.step(gradients);
      out.add(scale).add(stepped).add(stepped ? gradients : std::vector<float>());
    }
  });
}
