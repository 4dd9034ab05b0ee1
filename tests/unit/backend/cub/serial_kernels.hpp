// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/backend/cub/batch.hpp>
#include <shardkit/backend/cub/block_int8.hpp>
#include <shardkit/backend/cub/elementwise.hpp>
#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cub/tensors.hpp>
#include <shardkit/backend/cub/update.hpp>

#include "machine.hpp"

namespace shardkit::test {

/// A number of each thread of a warp, and what NormPass asks of a warp.
template <class A>
struct WarpValue {
    A of[gpu::detail::warp]{};

    friend WarpValue operator+(const WarpValue& a, const WarpValue& b) {
        WarpValue sum;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) { sum.of[t] = a.of[t] + b.of[t]; }
        return sum;
    }
};
struct SerialWarp {
    template <class A>
    WarpValue<A> choose(std::size_t distance, const WarpValue<A>& first, const WarpValue<A>& second) const {
        WarpValue<A> chosen;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
            chosen.of[t] = (t & distance) == 0 ? first.of[t] : second.of[t];
        }
        return chosen;
    }
    template <class A>
    WarpValue<A> exchange(std::size_t distance, const WarpValue<A>& value) const {
        WarpValue<A> exchanged;
        for (std::size_t t = 0; t < gpu::detail::warp; ++t) { exchanged.of[t] = value.of[t ^ distance]; }
        return exchanged;
    }
};
template <class A, class Pass>
WarpValue<A> pack_sums(const Pass& pass, const std::vector<typename Pass::Loaded>& loaded) {
    WarpValue<A> squares[Pass::vectors * Pass::lanes];
    for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
        for (std::size_t i = 0; i < std::size(squares); ++i) {
            squares[i].of[t] = pass.template square<A>(loaded[t].vector[i / Pass::lanes].lane[i % Pass::lanes]);
        }
    }
    return Pass::pack_sum(squares, SerialWarp{});
}

/// The same in double, of the one vector of each thread of an index and its neighbours.
template <class Pass>
WarpValue<double> pack_sum_again(const Pass& pass, std::uint64_t index, std::size_t vector) {
    WarpValue<double> squares[Pass::lanes];
    for (std::size_t t = 0; t < gpu::detail::warp; ++t) {
        const auto elements = pass.load(index + t, vector);
        for (std::size_t i = 0; i < Pass::lanes; ++i) {
            squares[i].of[t] = pass.template square<double>(elements.lane[i]);
        }
    }
    return Pass::pack_sum(squares, SerialWarp{});
}

/// What gpu::Kernels launches, run by a loop on the host's memory: the same passes, cut into the same vectors.
struct SerialKernels {
    /// Indices in descending order: an order that a device is allowed to run them in, and a loop would not.
    struct Stream {
        template <class Work>
        void operator()(std::uint64_t count, const Work& work, std::string_view /*kernel*/) const {
            for (std::uint64_t i = count; i > 0; --i) { work(i - 1); }
        }
        void synchronize() const {}
    };

    template <Element T>
    static void fill(Stream launch, std::span<T> to, std::type_identity_t<T> value) {
        gpu::detail::fill(launch, to, value);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(Stream launch, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        gpu::detail::convert(launch, from, to, where);
    }
    template <FloatingElement From, FloatingElement To>
    static void convert_rows(Stream launch, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        gpu::detail::convert_rows(launch, from, stride, to, columns);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(Stream launch, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        gpu::detail::accumulate(launch, addend, total, where);
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate_pair(Stream launch, std::span<const Addend> addend, std::span<const Sum> other,
                                std::span<Sum> total, SourceLocation where = SourceLocation::current()) {
        gpu::detail::accumulate_pair(launch, addend, other, total, where);
    }
    template <FloatingElement T>
    static void scale(Stream launch, std::span<T> to, const double* factor) {
        gpu::detail::scale(launch, to, factor);
    }
    template <class T>
    static void copy_in(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <class T>
    static void copy_out(Stream /*launch*/, std::span<const T> from, std::span<T> to) {
        std::copy(from.begin(), from.end(), to.begin());
    }
    template <class Work>
    static void run_once(Stream launch, const Work& work) {
        launch(1, gpu::detail::RunOnce<Work>{work}, "run_once");
    }
    template <FloatingElement T>
    static void norm_partial(Stream /*launch*/, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        if (pieces.empty()) { return; }
        const gpu::detail::NormPass<T> pass = gpu::detail::norm_pass(pieces, positions, scale);
        using A = Arithmetic<T>;
        shardkit::detail::NormSum sum;
        const auto add = [&sum](std::size_t i, std::int64_t amount) { sum.add_part(i, amount); };
        // One warp, each thread with all indices of its number.
        std::vector<gpu::detail::NormThread<A, decltype(add)>> threads(
            gpu::detail::warp, gpu::detail::NormThread<A, decltype(add)>(add));
        for (std::uint64_t first = 0; first < pass.indices(); first += gpu::detail::warp) {
            std::vector<typename gpu::detail::NormPass<T>::Loaded> loaded;
            for (std::uint64_t t = 0; t < gpu::detail::warp; ++t) { loaded.push_back(pass.load(first + t)); }
            const auto sums = pack_sums<A>(pass, loaded);
            for (std::uint64_t t = 0; t < gpu::detail::warp; ++t) {
                for (const auto& vector : loaded[t].vector) {
                    if (!pass.finite(vector)) { add(ExactSum::numbers, 1); }
                }
                if (t % 2 != 0) { continue; }
                const std::size_t vector = gpu::detail::NormPass<T>::vector_of(static_cast<unsigned>(t));
                if (shardkit::detail::holds_squares(sums.of[t])) {
                    threads[t].take(sums.of[t]);
                } else {
                    threads[t].take_apart(pack_sum_again(pass, first, vector).of[t]);
                }
            }
        }
        for (auto& thread : threads) { thread.end(); }
        sum.add_to(into);
    }
    template <class Update, class Spans>
    static void update(Stream launch, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip, const Spans& spans,
                       SourceLocation where = SourceLocation::current()) {
        gpu::detail::update(launch, ranges, updates, skip, spans, where);
    }
    template <class Update, class Spans>
    static auto update_entry(std::span<const rules::UpdateRange> ranges, const Update* updates,
                             const std::uint32_t* skip, const Spans& spans) {
        const auto pass = gpu::detail::update_pass(ranges, updates, skip, spans);
        return gpu::detail::batch_entry(pass);
    }
    template <class Entry>
    static void update_batch(Stream launch, const engine::LaunchBatch<Entry>& batch) {
        gpu::detail::run_batch(launch, batch, "update_batch");
    }
    template <Element T>
    static void pack(Stream launch, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        gpu::detail::copy_tensors<gpu::detail::PackDirection::pack>(launch, table, flat);
    }
    template <Element T>
    static void unpack(Stream launch, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        gpu::detail::copy_tensors<gpu::detail::PackDirection::unpack>(launch, table, flat);
    }
    template <std::size_t Block, FloatingElement T>
    static void quantize(Stream launch, std::span<const T> from, std::span<std::int8_t> codes,
                         std::span<float> scales, SourceLocation where = SourceLocation::current()) {
        gpu::detail::quantize<Block>(launch, from, codes, scales, where);
    }
    template <std::size_t Block, FloatingElement T>
    static void dequantize(Stream launch, std::span<const std::int8_t> codes, std::span<const float> scales,
                           std::span<T> to, SourceLocation where = SourceLocation::current()) {
        gpu::detail::dequantize<Block>(launch, codes, scales, to, where);
    }
};

/// A machine on the host's memory.
using SerialMachine = HostMachine<SerialKernels>;

}  // namespace shardkit::test
