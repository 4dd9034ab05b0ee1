// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/detail/concat.hpp>

#include "../test_size.hpp"
#include "../unit/backend/cub/adamw_checks.hpp"
#include "../unit/backend/cub/norm_pieces.hpp"
#include "../unit/backend/cub/sgd_checks.hpp"
#include "../unit/backend/cuda/typed_bytes.hpp"
#include "gpu_machine.hpp"
#include "skip.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;
using Kernels = shardkit::test::GpuKernels;

namespace {

constexpr std::size_t gibi = std::size_t{1} << 30U;

/// Whether the GPU has that much free, with room to spare; says so when it has not.
bool has_room(std::string_view what, std::size_t bytes) {
    if (test_size::reduced()) {
        skip("more than 4 GiB is not for small runs");
        return false;
    }
    std::size_t free = 0;
    std::size_t total = 0;
    sk::gpu::detail::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::size_t needed = bytes + gibi / 2;
    if (free >= needed) { return true; }
    skip(sk::detail::concat(what, ": needs ", (needed + gibi - 1) / gibi, " GiB of GPU memory, ", free / gibi,
                            " GiB are free"));
    return false;
}

template <class T>
class Large {
  public:
    Large(std::size_t size, const sk::gpu::TimelineRef& stream)
        : memory_(on_device<T>(size, sk::gpu::StreamRef(stream.native()))), stream_(stream) {}
    std::span<T> span() const { return memory_.span(); }
    std::span<const T> view() const { return memory_.span(); }

    void put(std::size_t first, const std::vector<T>& values) const {
        Kernels::copy_in(stream_, std::span(values), span().subspan(first, values.size()));
    }
    std::vector<T> window(std::size_t first, std::size_t count = 40) const {
        std::vector<T> values(count);
        Kernels::copy_out(stream_, view().subspan(first, count), std::span(values));
        return values;
    }
    /// The 40 elements around `position`, or next to it at the ends.
    std::vector<T> around(std::size_t position) const {
        return window(std::min(position < 20 ? 0 : position - 20, memory_.size() - 40));
    }

  private:
    TypedBytes<T> memory_;
    sk::gpu::TimelineRef stream_;
};

template <class T>
std::vector<T> all(T value) {
    return std::vector<T>(40, value);
}
/// 40 numbers of which no two are equal.
std::vector<std::uint8_t> counted(std::uint8_t from) {
    std::vector<std::uint8_t> values(40);
    for (std::uint8_t& value : values) { value = from++; }
    return values;
}

/// The runs of an optimizer's step on gibi + 1003 elements: a gap of 3 before 4 GiB of fp32.
const std::vector<sk::rules::UpdateRange> runs{{0, gibi - 5, 0}, {gibi - 2, gibi + 1003, 1}};

/// Whether what lay in the gap is as it was, and the rest has become what `stepped` says of the run's update.
template <class Stepped>
void check_runs(const Large<float>& master, float before, Stepped stepped) {
    CHECK(master.around(0) == all(stepped(0)));
    CHECK(master.around(gibi / 2) == all(stepped(0)));
    CHECK(master.around(runs.back().end) == all(stepped(1)));
    std::vector<float> border = all(stepped(0));
    std::fill(border.begin() + 15, border.begin() + 18, before);
    std::fill(border.begin() + 18, border.end(), stepped(1));
    CHECK(master.around(gibi) == border);
}

}  // namespace

TEST_CASE("fill beyond 2^32 elements") {
    const std::size_t size = 4 * gibi + 1003;
    if (!has_room("fill", size)) { return; }
    test::GpuMachine gpu;
    const Large<std::uint8_t> bytes(size, gpu.stream());
    Kernels::fill(gpu.stream(), bytes.span(), std::uint8_t{7});
    for (const std::size_t position : {std::size_t{0}, 2 * gibi, 4 * gibi, size}) {
        CHECK(bytes.around(position) == all(std::uint8_t{7}));
    }
}

TEST_CASE("convert and accumulate beyond 2^32 elements") {
    const std::size_t size = 4 * gibi + 1003;
    if (!has_room("convert and accumulate", 6 * size)) { return; }
    test::GpuMachine gpu;
    const auto at = gpu.stream();
    const Large<sk::bf16> from(size, at);
    const Large<float> to(size, at);
    Kernels::fill(at, from.span(), sk::bf16(1.5F));
    Kernels::convert(at, from.view(), to.span());
    Kernels::accumulate(at, from.view(), to.span());
    for (const std::size_t position : {std::size_t{0}, gibi, 2 * gibi, 4 * gibi, size}) {
        CHECK(to.around(position) == all(3.0F));
    }
}

TEST_CASE("norm and AdamW beyond 4 GiB, with runs on both sides of it") {
    const std::size_t size = runs.back().end;
    if (!has_room("norm and AdamW", 4 * size * sizeof(float))) { return; }
    test::GpuMachine gpu;
    auto& machine = gpu.machine();
    const auto at = gpu.stream();
    const Large<float> master(size, at);
    const Large<float> gradient(size, at);
    const Large<float> exp_avg(size, at);
    const Large<float> exp_avg_sq(size, at);
    Kernels::fill(at, gradient.span(), 0.5F);
    Kernels::fill(at, master.span(), 2.0F);

    // Powers of two: no addition rounds, so every element must be there exactly once.
    const auto pieces = test::norm_pieces(gradient.view(), test::ranges_of(runs));
    const auto pieces_there = test::array(machine, pieces);
    std::vector<double> numbers(1 + sk::detail::NormSum::numbers);
    numbers[0] = 2;
    const auto scalars = test::array(machine, numbers);
    Kernels::norm_partial(at, pieces_there.view(), test::positions_of(pieces), scalars.data(), scalars.data() + 1);
    at.synchronize();
    CHECK(sk::detail::NormSum(scalars.values().data() + 1).total() ==
          sk::detail::NormTotal{static_cast<double>(size - 3), 0});

    const auto updates = test::adamw_updates<float>();
    const auto runs_there = test::array(machine, runs);
    const auto updates_there = test::array(machine, updates);
    Kernels::update(at, runs_there.view(), updates_there.view().data(), static_cast<const std::uint32_t*>(nullptr),
                    sk::rules::UpdateSpans<float, float, float, 2>{
                        master.span(), {}, gradient.view(), {exp_avg.span(), exp_avg_sq.span()}});
    check_runs(master, 2, [&](std::size_t update) {
        float p = 2;
        float m = 0;
        float v = 0;
        updates[update](p, m, v, 0.5F);
        return p;
    });
}

TEST_CASE("SGD beyond 4 GiB, with runs on both sides of it") {
    const std::size_t size = runs.back().end;
    if (!has_room("SGD", 3 * size * sizeof(float))) { return; }
    test::GpuMachine gpu;
    const auto at = gpu.stream();
    const Large<float> master(size, at);
    const Large<float> gradient(size, at);
    const Large<float> momentum(size, at);
    Kernels::fill(at, master.span(), 2.0F);
    Kernels::fill(at, gradient.span(), 0.5F);
    Kernels::fill(at, momentum.span(), 0.25F);
    const auto updates = test::sgd_updates<float>(sk::Momentum::classical);
    const auto runs_there = test::array(gpu.machine(), runs);
    const auto updates_there = test::array(gpu.machine(), updates);
    Kernels::update(
        at, runs_there.view(), updates_there.view().data(), static_cast<const std::uint32_t*>(nullptr),
        sk::rules::UpdateSpans<float, float, float, 1>{master.span(), {}, gradient.view(), {momentum.span()}});
    const auto stepped = [&](std::size_t update) {
        std::vector<float> both{2, 0.25F};
        updates[update](both[0], both[1], 0.5F);
        return both;
    };
    check_runs(master, 2, [&](std::size_t update) { return stepped(update)[0]; });
    check_runs(momentum, 0.25F, [&](std::size_t update) { return stepped(update)[1]; });
}

TEST_CASE("pack and unpack beyond 2^32 elements") {
    const std::size_t size = 4 * gibi + 1003;
    if (!has_room("pack and unpack", 2 * size)) { return; }
    test::GpuMachine gpu;
    const auto at = gpu.stream();
    // A tensor of more than 2^32 elements, and behind it a short one that is not aligned as the flat buffer is there.
    constexpr std::size_t begin = 16;
    const Large<std::uint8_t> flat(size, at);
    const Large<std::uint8_t> tensor(size - 100 - begin, at);
    const auto short_one = test::array(gpu.machine(), counted(200), 1);
    const std::vector<sk::engine::TensorPiece<std::uint8_t>> pieces{{begin, size - 100, tensor.span().data()},
                                                                    {size - 60, size - 20, short_one.data()}};
    const auto table = test::array(gpu.machine(), sk::engine::tensor_table(std::span(pieces), size));
    // In the tensor. The third reaches over 2^32 there and in the flat buffer.
    const std::size_t places[] = {0, 2 * gibi - 20, 4 * gibi - 28, tensor.view().size() - 40};
    const auto put = [&](const Large<std::uint8_t>& into, std::size_t shift, std::uint8_t fill, std::uint8_t from) {
        Kernels::fill(at, into.span(), fill);
        for (const std::size_t place : places) { into.put(place + shift, counted(from++)); }
    };
    const auto check = [&](const Large<std::uint8_t>& is, std::size_t shift, std::uint8_t fill, std::uint8_t from) {
        for (const std::size_t place : places) { CHECK(is.window(place + shift) == counted(from++)); }
        CHECK(is.window(gibi) == all(fill));
        CHECK(is.window(3 * gibi) == all(fill));
    };

    put(tensor, 0, 1, 100);
    Kernels::fill(at, flat.span(), std::uint8_t{2});
    Kernels::copy_tensors<sk::engine::TensorCopy::pack>(at, table.view(), flat.span());
    check(flat, begin, 1, 100);
    CHECK(flat.window(size - 60) == counted(200));
    CHECK(flat.window(0, begin) == std::vector<std::uint8_t>(begin, 2));
    CHECK(flat.window(size - 100) == all(std::uint8_t{2}));
    CHECK(flat.window(size - 20, 20) == std::vector<std::uint8_t>(20, 2));

    put(flat, begin, 3, 150);
    flat.put(size - 60, counted(20));
    Kernels::copy_tensors<sk::engine::TensorCopy::unpack>(at, table.view(), flat.span());
    check(tensor, 0, 3, 150);
    CHECK(short_one.values() == counted(20));
}
