// SPDX-License-Identifier: Apache-2.0
// The kernels of an engine that is chosen at run time, on a stream of a device: what they give to it is what they do
// on the host, and a kernel that no file launches is refused by name.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>

#include "any_kernels_checks.hpp"
#include "host_functions.hpp"
#include "standin.hpp"
#include "unit/thrown_message.hpp"

namespace any_kernels_test {

namespace {

namespace sk = shardkit;
using any_kernels_checks::Kernels;
using any_kernels_checks::results_on;

/// A work of a type that no other file can name.
struct Count {
    int* calls;
    void operator()(std::uint64_t /*index*/) const { ++*calls; }
};

}  // namespace

TEST_CASE("AnyKernels: on a device's stream, with the host's results, and later than the host") {
    standin::reset();
    standin::set_pace(standin::Pace::lazy);
    {
        const sk::gpu::Stream stream;
        sk::gpu::Timeline timeline{stream.ref()};
        const std::vector<double> expected = results_on({});
        CHECK(expected[1] == any_kernels_checks::second_result);
        CHECK(results_on(timeline.ref()) == expected);
        int calls = 0;
        Kernels::for_each_index(timeline.ref(), 3, Count{&calls});
        CHECK(calls == 0);
        timeline.ref().synchronize();
        CHECK(calls == 3);
        host_functions::Kept::all().forget();
    }
    CHECK(standin::live().queued == 0);
}

TEST_CASE("AnyKernels: a kernel that no file launches, and a function of the host, are refused by name") {
    standin::reset();
    const sk::gpu::Stream stream;
    sk::gpu::Timeline timeline{stream.ref()};
    const sk::Stream any = timeline.ref();
    const std::string told =
        thrown_message<sk::UsageError>([&] { Kernels::run_once(any, host_functions::NeverLaunched{}); });
    CHECK(told.find("RunOnce<host_functions::NeverLaunched>") != std::string::npos);
    CHECK(told.find("KernelLaunches") != std::string::npos);
    CHECK(thrown_message<sk::UsageError>([&] { any.submit([] {}); }).find("a function of the host") !=
          std::string::npos);
    CHECK(thrown_message<sk::UsageError>([&] {
              sk::gpu::TimelineRef{sk::Stream{}};
          }).find("expected one of a device") != std::string::npos);
}

}  // namespace any_kernels_test
