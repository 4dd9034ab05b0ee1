// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "unit/backend/cuda/typed_bytes.hpp"

/// The kernels of an engine that is chosen at run time, on a stream of the host or of a device.
namespace any_kernels_checks {

namespace sk = shardkit;
using sk::bf16;
using Kernels = sk::host::AnyKernels;

/// Memory where a stream's kernels work: a device's, or the host's.
template <class T>
class Memory {
  public:
    Memory(const sk::Stream& stream, const std::vector<T>& values) : stream_(stream), host_(values) {
        if (!stream.on_device()) { return; }
        device_ = on_device<T>(values.size(), sk::gpu::StreamRef(sk::gpu::TimelineRef(stream).native()));
        Kernels::copy_in(stream_, std::span<const T>(host_), device_.span());
    }
    std::span<T> span() { return stream_.on_device() ? device_.span() : std::span<T>(host_); }
    std::vector<T> values() {
        std::vector<T> read(host_.size());
        Kernels::copy_out(stream_, std::span<const T>(span()), std::span<T>(read));
        return read;
    }

  private:
    sk::Stream stream_;
    std::vector<T> host_;
    TypedBytes<T> device_;
};

/// Adds the index to a number.
struct AddIndex {
    float* to;
    constexpr void operator()(std::uint64_t i) const { to[i] += static_cast<float>(i); }
};
struct Double {
    float* to;
    constexpr void operator()() const { *to *= 2; }
};

/// What every kernel makes of some numbers.
inline std::vector<double> results_on(const sk::Stream& stream) {
    constexpr std::size_t count = 5;
    Memory<float> a(stream, {1, 2, 3, 4, 5});
    Memory<float> b(stream, std::vector<float>(count));
    Memory<bf16> halves(stream, std::vector<bf16>(count));
    Kernels::fill(stream, b.span(), 0.75F);
    Kernels::accumulate(stream, std::span<const float>(a.span()), b.span());
    Kernels::convert(stream, std::span<const float>(b.span()), halves.span());
    Kernels::accumulate(stream, std::span<const bf16>(halves.span()), a.span());
    Kernels::accumulate(stream, std::span<const float>(a.span()), b.span());
    Kernels::for_each_index(stream, count, AddIndex{b.span().data()});
    Kernels::run_once(stream, Double{b.span().data()});
    Memory<double> scale(stream, {0.5});
    Memory<double> sum(stream, std::vector<double>(sk::detail::NormSum::numbers));
    using Piece = sk::engine::NormPiece<float>;
    Memory<Piece> pieces(stream, {Piece{0, count, a.span().data()}});
    Kernels::norm_partial(stream, std::span<const Piece>(pieces.span()), {0, count}, scale.span().data(),
                          sum.span().data());
    std::vector<double> results;
    for (const float value : b.values()) { results.push_back(value); }
    for (const bf16 value : halves.values()) { results.push_back(static_cast<float>(value)); }
    for (const double value : sum.values()) { results.push_back(value); }
    return results;
}

/// The second number of what is filled, added to, rounded to bf16, added to twice, and added its index.
inline constexpr double second_result = 2 + 0.75 + 2 + 2.75 + 1;

}  // namespace any_kernels_checks
