// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/for_each_lanes.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::detail {

/// Stands for a stream where loops run in the caller.
struct InlineStream {};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_HOST_TARGET {

/// Element-wise and reduction loops in the caller's thread, on short vectors.
/// Alignment: that of an element.   Cost: one pass over the spans; no allocation.
/// An element's result depends on that element alone, not on its place in the span. Therefore shards give the same
/// bits as the whole, wherever they are split.
/// @pre   the sizes of a call's spans agree
struct HostKernels {
    /// Sets every element.
    /// @post every element of `to` is `value`
    template <Element T>
    static void fill(InlineStream, std::span<T> to, std::type_identity_t<T> value) {
        static constexpr unsigned char zeros[sizeof(T)]{};
        if (!to.empty() && std::memcmp(&value, zeros, sizeof value) == 0) {
            // Up to nine times as fast as elements one by one.
            std::memset(static_cast<void*>(to.data()), 0, to.size_bytes());
        } else {
            std::fill(to.begin(), to.end(), value);
        }
    }

    /// Converts elements.
    /// @post to[i] is from[i] rounded to nearest, ties to even (from fp64 to a 16-bit type through fp32)
    /// @pre the spans do not overlap
    template <FloatingElement From, FloatingElement To>
    static void convert(InlineStream, std::span<const From> from, std::span<To> to) {
        if constexpr (std::same_as<From, To>) {
            std::copy(from.begin(), from.end(), to.begin());
        } else {
            using A = std::common_type_t<Arithmetic<From>, Arithmetic<To>>;
            host::detail::convert_by_lanes<A>(from.data(), to.data(), from.size());
        }
    }

    /// Adds one span to another.
    /// @post total[i] is the old total[i] + addend[i], added in Arithmetic<Sum> and rounded once
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(InlineStream, std::span<const Addend> addend, std::span<Sum> total) {
        host::detail::for_each_lanes<Arithmetic<Sum>>(
            total.size(), [](auto source, auto& target) __attribute__((always_inline)) { target = target + source; },
            host::detail::Input<Addend>{addend.data()}, host::detail::InOut<Sum>{total.data()});
    }

    /// Copies every tensor of `table` to its place in `flat`, or from there; elements between them are not touched.
    /// @pre `table` is from tensor_table; no tensor overlaps `flat` or another one
    template <engine::TensorCopy Way, Element T>
    static void copy_tensors(InlineStream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        const host::detail::Store store = host::detail::store_for(2 * flat.size_bytes());
        for (const engine::TensorPiece<T>& piece : table) {
            T* from = piece.tensor;
            T* to = flat.data() + piece.begin;
            if (Way == engine::TensorCopy::unpack) { std::swap(from, to); }
            host::detail::copy_elements(from, to, static_cast<std::size_t>(piece.end - piece.begin), store);
        }
        host::detail::finish(store);
    }

    /// Runs work() once.
    template <class Work>
    static void run_once(InlineStream, const Work& work) {
        work();
    }
    /// Runs work(i) for every i below n.
    template <class Work>
    static void for_each_index(InlineStream, std::uint64_t n, const Work& work) {
        for (std::uint64_t i = 0; i < n; ++i) { work(i); }
    }

    /// Adds the sum of (*scale * element)^2 over `pieces`, and the finite check, to the NormSum that travels in
    /// `into`.
    template <FloatingElement T>
    static void norm_partial(InlineStream, std::span<const engine::NormPiece<T>> pieces, IndexRange /*positions*/,
                             const double* scale, double* into) {
        NormSum sum;
        for (const engine::NormPiece<T>& piece : pieces) {
            norm_partial({}, std::span(piece.elements, piece.end - piece.begin), *scale, sum);
        }
        sum.add_to(into);
    }
    /// Adds the sum of (scale * gradient[i])^2 and the finite check of `gradient` to `into`.
    /// Order:  Arithmetic<T> inside packs of 128 bytes counted from the span's start (see pack_sums), exact across
    ///         packs. A pack whose sum Arithmetic<T> does not hold is summed again in double, and only there elements
    ///         are checked for infinities and NaN. So the sum is the same wherever a span is cut at packs.
    template <FloatingElement T>
    static void norm_partial(InlineStream, std::span<const T> gradient, double scale, NormSum& into) {
        using A = Arithmetic<T>;
        constexpr std::size_t pack = host::detail::pack_elements<T>;
        const SquaredTerm<A> term{rules::Factor<A>(scale)};
        A sums[host::detail::near_sums];
        host::detail::NearSums<A> window(into.squares);
        for (std::size_t at = 0; at < gradient.size(); at += std::size(sums) * pack) {
            const auto block = gradient.subspan(at, std::min(std::size(sums) * pack, gradient.size() - at));
            host::detail::pack_sums<A>(block, term, sums);
            const auto again = [&](std::size_t p) {
                const auto elements = block.subspan(p * pack, std::min(pack, block.size() - p * pack));
                static constexpr T zeros[pack]{};
                if (std::memcmp(elements.data(), zeros, elements.size_bytes()) == 0) { return; }
                double squares = 0;
                host::detail::pack_sums<double>(elements, SquaredTerm<double>{rules::Factor<double>(scale)},
                                                &squares);
                into.squares.add(squares);
                if (!shardkit::detail::is_finite(sums[p]) && !all_finite(elements, term.scale)) {
                    into.nonfinite += 1;
                }
            };
            const std::span<const A> packs(sums, (block.size() + pack - 1) / pack);
            bool zeros = false;
            if (packs.size() < std::size(sums) || !window.add(sums, &zeros)) {
                into.add_packs(packs, again);
            } else if (zeros && !holds_squares(A{0})) {
                for (std::size_t p = 0; p < packs.size(); ++p) {
                    if (sums[p] == 0) { again(p); }
                }
            }
        }
    }

    /// Makes one step of an optimizer over elements of a shard.
    /// Cost:   fp32 throughout: 12 bytes moved per element and 8 for each state, 4 for one in bf16, and 2.25 for one
    ///         in blocks of 8 bits. If an update's gradient_scale is 1, its unscaled() saves the multiplications.
    template <class A, std::size_t StateCount, class Storage, rules::UpdateOf<A, StateCount> Update>
    static void update(const Update& update, const rules::UpdatedElements<A, StateCount, Storage>& elements) {
        const auto step = [update](auto& parameter, auto gradient, auto&... states) __attribute__((always_inline)) {
            update(parameter, states..., gradient);
        };
        if constexpr (requires { update.gradient_scale == rules::Factor<A>(), update.unscaled(); }) {
            if (update.gradient_scale == rules::Factor<A>()) {
                return HostKernels::update(update.unscaled(), elements);
            }
        }
        const host::detail::InOut<A> masters{static_cast<A*>(elements.masters)};
        // What is in use of what else takes a pass of its own.
        if constexpr (Storage::format != StateFormat::full) {
            if (elements.gathered != nullptr) {
                return with_states(
                    elements,
                    [step](auto& gathered, auto& parameter, auto gradient, auto&... states)
                        __attribute__((always_inline)) {
                            step(parameter, gradient, states...);
                            gathered = parameter;
                        },
                    host::detail::Output<bf16>{elements.gathered}, masters);
            }
        } else if constexpr (std::same_as<A, float>) {
            if (elements.half) {
                return with_states(elements, step, host::detail::InOut<bf16>{static_cast<bf16*>(elements.masters)});
            }
        }
        with_states(elements, step, masters);
    }

  private:
    /// Calls f(lanes of the streams..., of gradients, of the states...) for the elements.
    template <class A, std::size_t Count, class Storage, class F, class... S>
    static void with_states(const rules::UpdatedElements<A, Count, Storage>& elements, const F& f,
                            const S&... streams) {
        const host::detail::Input<A> gradients{elements.gradients};
        if constexpr (Storage::format == StateFormat::full) {
            [&]<std::size_t... Index>(std::index_sequence<Index...>) {
                host::detail::for_each_lanes<A>(elements.count, f, streams..., gradients,
                                                host::detail::InOut<A>{elements.states[Index].data()}...);
            }
            (std::make_index_sequence<Count>{});
        } else {
            const rules::UpdateDraws& draws = elements.draws;
            host::detail::StateStreams<Storage, Count> to{{}, {}, draws.element};
            for (std::size_t s = 0; s < Count; ++s) {
                to.pointers[s] = host::detail::state_pointers<Storage>(elements.states[s]);
            }
            for (std::size_t pair = 0; pair < to.draws.size(); ++pair) {
                to.draws[pair] = StateDraws(draws.seed, *draws.steps, static_cast<std::uint32_t>(pair));
            }
            host::detail::for_each_state_block(elements.count, f, to, streams..., gradients);
        }
    }

    template <FloatingElement T>
    static bool all_finite(std::span<const T> elements, const rules::Factor<Arithmetic<T>>& scale) {
        return std::all_of(elements.begin(), elements.end(), [&](T element) {
            const auto given = static_cast<Arithmetic<T>>(element);
            return shardkit::detail::is_finite(given) && shardkit::detail::is_finite(scale * given);
        });
    }
};

}  // namespace shardkit::detail SHARDKIT_HOST_TARGET
