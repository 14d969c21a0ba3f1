#include "baton/predict/search.h"

#include "baton/job/step_json.h"
#include "baton/lab/json.h"
#include "bindings.h"
#include "outside.h"

namespace baton::python {
namespace {

using lab::Json;

/// The settings that the search chose, by the names of the flags.
Json found_json(const predict::RankedSplit& one) {
  Json json = predict::to_record(one).json();
  json[lab::key::settings.name] = job::settings_json(one.spec);
  return json;
}

std::string search(const Setup& setup, const py::object& progress) {
  const std::shared_ptr<py::object> callback = progress.is_none() ? nullptr : shared(progress);
  const predict::SearchProgress tell = [&](std::size_t done, std::size_t total) {
    const py::gil_scoped_acquire acquire;
    const py::object answer = (*callback)(done, total);
    return answer.is_none() || answer.cast<bool>();
  };
  return outside([&] {
    const predict::SearchResult result = predict::search(setup.spec, machine(), callback ? tell : predict::SearchProgress(),
                                                         setup.overrides);
    Json ranked = Json::array();
    for (const predict::RankedSplit& one : result.ranked) {
      ranked.push_back(found_json(one));
    }
    return Json{{"ranked", ranked},
                {"frontier", result.frontier},
                {"tried", result.tried},
                {"pruned", result.pruned},
                {"too_large", result.too_large},
                {"least_too_large_bytes", result.least_too_large.count},
                {"refused", result.refused},
                {"complete", result.complete},
                {"one_device", result.one_device ? found_json(*result.one_device) : Json()},
                {"against_one_device", predict::against_one_device(result)},
                {"why_not_the_next", result.ranked.size() > 1 ? predict::why_not(result.ranked[0], result.ranked[1]) : ""}}
        .dump();
  });
}

}  // namespace

void bind_search(py::module_& module) {
  module.def("search", &search, py::arg("setup"), py::arg("progress"),
             "Searches for the fastest split. progress(done, total) ends it with what there is if it gives False. Gives JSON.");
}

}  // namespace baton::python
