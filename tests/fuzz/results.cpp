#include "baton/lab/store.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "target.h"

using namespace baton;

/// The records of an experiment as lines; the first byte says which experiment, and records without a point
/// of theirs get those of its presets in order. What is accepted can be printed in every way.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::vector<lab::Experiment>& all = lab::experiments();
  const auto experiment = std::make_shared<const lab::Experiment>(all[data[0] % all.size()]);
  test::tolerate([&] {
    const std::map<lab::Point, lab::Record> kept = lab::parse_records(test::text_of(data + 1, size - 1), false);
    const std::vector<lab::Point> points = lab::points(*experiment, lab::Preset::quick, {});
    std::vector<lab::Record> records(points.size());
    auto next = kept.begin();
    for (std::size_t i = 0; i < points.size() && next != kept.end(); ++i, ++next) {
      records[i] = next->second;
    }
    const lab::Result result = lab::conclude_kept(experiment, points, records, "baton lab", lab::Preset::quick);
    report::to_terminal(result);
    report::to_csv(result);
    const lab::Json report = report::to_report({result}, {});
    report::to_markdown({result}, report);
    report.dump();
  });
  return 0;
}
