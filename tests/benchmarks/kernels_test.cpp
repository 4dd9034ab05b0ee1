// SPDX-License-Identifier: Apache-2.0
// The data check of the kernels: it passes what the library computes, and counts what is planted.
#include <cstddef>
#include <cstdint>
#include <span>

#include <doctest/doctest.h>
#include <shardkit/backend/self/engine.hpp>

#include "../../benchmarks/kernels/make_workload.hpp"

namespace {

using namespace benchmarks::kernels;
using Kernels = shardkit::self::Engine::Kernels;

constexpr std::size_t elements = 1000;

/// Kernels that compute what the library's do, and then spoil one element.
struct Planted {
    template <class S, class Update, class Spans>
    static void adamw(const S& stream, std::span<const shardkit::UpdateRun> runs, const Update* updates,
                      const std::uint32_t* skip, const Spans& spans) {
        Kernels::adamw(stream, runs, updates, skip, spans);
        spans.exp_avg[elements - 1] += 1e-3F;
    }
    template <class S, class Update, class Spans>
    static void sgd(const S& stream, std::span<const shardkit::UpdateRun> runs, const Update* updates,
                    const std::uint32_t* skip, const Spans& spans) {
        Kernels::sgd(stream, runs, updates, skip, spans);
        spans.master[0] += 1e-3F;
    }
    template <class S, class T>
    static void norm_partial(const S& stream, std::span<const T> gradient,
                             std::span<const shardkit::IndexRange> segments, const double* scale, double* into) {
        Kernels::norm_partial(stream, gradient, segments, scale, into);
        into[1] += 1;
    }
    template <class S, class From, class To>
    static void convert(const S& stream, std::span<const From> from, std::span<To> to) {
        Kernels::convert(stream, from, to);
        to[7] = static_cast<To>(static_cast<float>(to[7]) * 2);
    }
    template <class S, class Addend, class Sum>
    static void accumulate(const S& stream, std::span<const Addend> addend, std::span<Sum> total) {
        Kernels::accumulate(stream, addend, total);
        total[elements / 2] += 1;
    }
};

std::uint64_t wrong_after(benchmarks::Workload& workload, std::size_t calls) {
    workload.prepare();
    workload.call(calls);
    return workload.count_wrong();
}

}  // namespace

TEST_CASE("every kernel: right data passes, one spoiled element is one wrong value, no call is wrong") {
    for (std::size_t kernel = 0; kernel < kernel_names.size(); ++kernel) {
        for (const DataType type : {DataType::fp32, DataType::bf16}) {
            CAPTURE(kernel_names[kernel]);
            CAPTURE(type_names[static_cast<std::size_t>(type)]);
            const auto workload = make_workload<Kernels>(static_cast<KernelKind>(kernel), type, elements);
            CHECK(wrong_after(*workload, 1) == 0);
            CHECK(wrong_after(*workload, 0) > 0);
            CHECK(wrong_after(*make_workload<Planted>(static_cast<KernelKind>(kernel), type, elements), 1) == 1);
        }
    }
}

TEST_CASE("bytes per element are those of the buffers that a kernel touches") {
    // fp32 parameter, two moments: read and written; a gradient of 4 bytes, or of 2 and a copy of 2.
    CHECK(bytes_per_element(KernelKind::adamw, DataType::fp32) == 28);
    CHECK(bytes_per_element(KernelKind::adamw, DataType::bf16) == 28);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::fp32) == 20);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::bf16) == 20);
    CHECK(bytes_per_element(KernelKind::norm, DataType::fp32) == 4);
    CHECK(bytes_per_element(KernelKind::norm, DataType::bf16) == 2);
    CHECK(bytes_per_element(KernelKind::cast, DataType::fp32) == 6);
    CHECK(bytes_per_element(KernelKind::cast, DataType::bf16) == 6);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::fp32) == 12);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::bf16) == 10);
}

TEST_CASE("values are exact in bf16 and never 0") {
    for (std::size_t i = 0; i < 1000; ++i) {
        const float v = value(i % 4, i);
        CHECK(static_cast<float>(static_cast<shardkit::bf16>(v)) == v);
        CHECK(v != 0);
        CHECK(std::abs(v) <= 1);
    }
}
