// Reads a model and what a step has to do, compiles your strategy to a plan, and returns the plan.
#include "baton/exercise/program.h"

#include "baton/model/parse.h"
#include "baton/plan/text.h"
#include "exercise.h"

int main() {
  using namespace baton;
  exercise::serve([](exercise::Reader& given, exercise::Writer& out) {
    const model::Model model = model::parse_model(given.text());
    std::vector<cluster::Device> devices;
    for (std::int64_t count = given.integer(), d = 0; d < count; ++d) {
      devices.push_back({"cpu:" + std::to_string(d), {0}, Bytes(std::int64_t{1} << 30)});
    }
    const cluster::Cluster cluster(std::move(devices));
    strategy::Step step{.global_batch = given.integer()};
    step.optimizer = op::Sgd{.rate = given.real()};
    const Bytes bucket(given.integer());
    const strategy::Request request{.model = model,
                                    .cluster = cluster,
                                    .strategy = {"ddp by hand", "passes", ddp},
                                    .step = step,
                                    .layout = {.bucket = bucket, .first_bucket = bucket}};
    out.add(plan::to_text(strategy::compile(request)));
  });
}
