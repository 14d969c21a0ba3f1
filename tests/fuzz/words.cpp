#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/job/what_if.h"
#include "baton/lab/runner.h"
#include "baton/model/parse.h"
#include "baton/op/optimizer.h"
#include "baton/training/job.h"
#include "target.h"

using namespace baton;

/// The words of a command line or a spec, each parser by itself; the first byte says which.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const cluster::Machine machine{"host", "cpu", {0, 1, 2, 3}, Bytes(1 << 30), Bytes(1 << 20)};
  static const std::vector<cluster::Gpu> gpus(2, {"gpu", Bytes(1 << 30), 132});
  if (size == 0) {
    return 0;
  }
  const std::string_view text = test::text_of(data + 1, size - 1);
  test::tolerate([&] {
    switch (data[0] % 12) {
      case 0:
        test::require(parse_bytes(text, "it").count >= 0);
        break;
      case 1:
        test::require(parse_time(text, "it").count >= 0);
        break;
      case 2:
        test::require(parse_bandwidth(text, "it") > 0);
        break;
      case 3:
        test::require(parse_rate(text, "it") > 0);
        break;
      case 4:
        parse_number(text, "it", -1e6, 1e6);
        break;
      case 5:
        cluster::parse_link(text).time(Bytes(1 << 30));
        break;
      case 6:
        cluster::parse_devices(text, machine);
        break;
      case 7:
        cluster::names_gpus(text) ? void(cluster::parse_gpu_devices(text, gpus)) : void();
        break;
      case 8:
        test::require(model::parse_model(text).parameter_count() >= 0);
        break;
      case 9:
        strategy::parse_delay(text);
        break;
      case 10:
        job::parse_what_if(text);
        break;
      case 11: {
        lab::AxisValues values;
        lab::parse_axis_values(std::string(text), values);
      }
    }
  });
  return 0;
}
