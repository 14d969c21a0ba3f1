#include "baton/measure/matrix_power.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "baton/devices/backends.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/plan/verify.h"
#include "support/devices.h"
#include "support/machine.h"
#include "support/usage_sentence.h"

namespace baton::measure {
namespace {

using Matrix = std::vector<double>;  // square, row-major

Matrix product(const Matrix& a, const Matrix& b, std::size_t n) {
  Matrix c(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < n; ++k) {
        c[i * n + j] += a[i * n + k] * b[k * n + j];
      }
    }
  }
  return c;
}

/// One product after the other, in double precision.
Matrix slow_power(const Matrix& base, std::int64_t power, std::size_t n) {
  Matrix result = base;
  for (std::int64_t i = 1; i < power; ++i) {
    result = product(result, base, n);
  }
  return result;
}

BufferId labelled(const plan::Plan& plan, const std::string& label) {
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    if (plan.buffers()[b].label == label && plan.buffers()[b].persistent) {
      return BufferId(b);
    }
  }
  ADD_FAILURE() << "no buffer " << label;
  return {};
}

cluster::Cluster on(std::size_t devices) { return cluster::Cluster(baton::test::cpus(devices, 1, Bytes(64 << 20))); }

void expect_right(const exec::Backend& backend, std::int64_t size, std::int64_t power, std::size_t devices) {
  SCOPED_TRACE(::testing::Message() << backend.name() << ", " << size << "x" << size << " to the " << power << " on " << devices);
  const cluster::Cluster cluster = on(devices);
  const plan::Plan plan = matrix_power_plan(size, power, cluster, backend.target());
  exec::Executor executor(plan, cluster, backend);
  const Matrix a = executor.read(labelled(plan, "A"));
  const Matrix b = executor.read(labelled(plan, "B"));
  EXPECT_NE(a, b);
  executor.run({.steps = 2, .warmup = 0});
  const Matrix sum = executor.read(labelled(plan, "sum"));
  const auto n = static_cast<std::size_t>(size);
  const Matrix a_power = slow_power(a, power, n);
  const Matrix b_power = slow_power(b, power, n);
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < n * n; ++i) {
    largest = std::max(largest, std::abs(a_power[i] + b_power[i]));
    worst = std::max(worst, std::abs(sum[i] - a_power[i] - b_power[i]));
  }
  EXPECT_LT(worst, 1e-5 * largest);
}

TEST(MatrixPowerPlan, GivesWhatASlowProductGives) {
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = devices::make_backend(name);
    for (const std::int64_t power : {1, 2, 3, 7, 10}) {
      for (const std::int64_t size : {1, 5, 17, 32}) {
        for (const std::size_t devices : {1, 2}) {
          expect_right(*backend, size, power, devices);
        }
      }
    }
  }
}

TEST(MatrixPowerPlan, HasAsManyProductsAsAreNeededAndOneMove) {
  const auto backend = exec::make_reference_backend();
  for (const std::int64_t power : {1, 2, 3, 7, 10, 16, 1000}) {
    const plan::Plan plan = matrix_power_plan(4, power, on(2), backend->target());
    EXPECT_TRUE(plan::verify(plan, {}).violations.empty());
    const auto products = std::count_if(plan.tasks().begin(), plan.tasks().end(), [](const plan::Task& task) {
      const auto* compute = std::get_if<plan::Compute>(&task.action);
      return compute != nullptr && std::holds_alternative<op::MatrixProduct>(compute->op);
    });
    EXPECT_EQ(products, 2 * products_needed(power)) << power;
    std::int64_t transfers = 0;
    for (const plan::Totals& totals : plan::totals_by_device(plan)) {
      transfers += totals.transfers;
    }
    EXPECT_EQ(transfers, 1);
  }
}

TEST(MatrixPowerPlan, OnTwoDevicesEachRaisesItsOwn) {
  const plan::Plan plan = matrix_power_plan(4, 10, on(2), exec::make_reference_backend()->target());
  EXPECT_EQ(plan[labelled(plan, "A")].device, DeviceId(0));
  EXPECT_EQ(plan[labelled(plan, "B")].device, DeviceId(1));
  EXPECT_EQ(plan[labelled(plan, "sum")].device, DeviceId(0));
}

TEST(MatrixPowerPlan, OneDeviceHoldsFiveMatricesAtMost) {
  constexpr std::int64_t size = 16;  // a multiple of what memory is aligned to
  for (const std::int64_t power : {1, 2, 3, 7, 10, 16, 1000, 1023}) {
    const plan::Plan plan = matrix_power_plan(size, power, on(1), plan::Target{});
    const plan::Verdict verdict = plan::verify(plan, {});
    EXPECT_TRUE(verdict.violations.empty());
    // A, B and the sum; from the square on the power so far; and from the cube on what is made of it.
    const std::int64_t matrices = power == 1 ? 3 : power == 2 ? 4 : 5;
    EXPECT_EQ(verdict.memory.peak[0], Bytes(matrices * size * size * 4)) << power;
  }
}

TEST(MatrixPowerPlan, OfTwoDevicesTheFirstHoldsFiveMatricesAndTheSecondThree) {
  constexpr std::int64_t size = 16;
  const plan::Verdict verdict = plan::verify(matrix_power_plan(size, 10, on(2), plan::Target{}), {});
  EXPECT_EQ(verdict.memory.peak[0], Bytes(5 * size * size * 4)) << "A, the sum, its two powers at hand and the one that comes";
  EXPECT_EQ(verdict.memory.peak[1], Bytes(3 * size * size * 4));
}

TEST(MatrixPowerPlan, IsComputedInThePrecisionThatIsAskedFor) {
  const plan::Target target = exec::make_reference_backend()->target();
  const plan::Plan wide = matrix_power_plan(4, 2, on(1), target, strategy::Precision::fp64);
  EXPECT_EQ(wide[labelled(wide, "sum")].dtype, DType::f64);
  const plan::Plan rounded = matrix_power_plan(4, 2, on(1), target, strategy::Precision::tf32);
  EXPECT_EQ(rounded[labelled(rounded, "sum")].dtype, DType::f32);
  EXPECT_TRUE(std::get<op::MatrixProduct>(std::get<plan::Compute>(rounded.tasks()[0].action).op).tf32);
  EXPECT_TRUE(baton::test::says(
      baton::test::usage_sentence([&] { matrix_power_plan(4, 2, on(1), target, strategy::Precision::bf16); }), "bf16"));
}

TEST(ProductsNeeded, CountsSquaresAndSetBits) {
  EXPECT_EQ(products_needed(1), 0);
  EXPECT_EQ(products_needed(2), 1);
  EXPECT_EQ(products_needed(3), 2);
  EXPECT_EQ(products_needed(4), 2);
  EXPECT_EQ(products_needed(7), 4);
  EXPECT_EQ(products_needed(10), 4);
  EXPECT_EQ(products_needed(1024), 10);
}

}  // namespace
}  // namespace baton::measure
