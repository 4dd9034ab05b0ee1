// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

/// An optimizer's update of a range of elements, in a name of the target that the file is compiled for.
struct RangeUpdates {
    /// @param parts  the spans, which it cuts
    template <class Update, class Spans>
    static void update(const rules::UpdateRange& range, const Update& update, Spans&& parts,
                       SourceLocation where = SourceLocation::current()) {
        const auto part = [&](auto span) {
            return span.empty() ? span : span.subspan(range.begin, range.end - range.begin);
        };
        parts.master = part(parts.master);
        parts.gathered = part(parts.gathered);
        parts.gradient = part(parts.gradient);
        parts.rest = part(parts.rest);
        for (auto& state : parts.states) { state = part(state); }
        parts.draws.element = range.element;
        parts.state_draws.element = range.element;
        shardkit::detail::HostKernels::update(InlineStream{}, update, parts, where);
    }
    /// The same of elements that are all given.
    template <class Update, class Spans>
    static void update(const Update& update, const Spans& spans) {
        shardkit::detail::HostKernels::update(InlineStream{}, update, spans);
    }
    // Those of a HostConversions.
    template <class From, class To>
    static void convert(const void* from, void* to, std::size_t count) {
        shardkit::detail::HostKernels::convert(InlineStream{}, std::span(static_cast<const From*>(from), count),
                                               std::span(static_cast<To*>(to), count));
    }
    template <class T>
    static void round(const void* from, void* to, std::size_t count, std::uint64_t seed, std::uint64_t step,
                      std::uint64_t element) {
        shardkit::detail::ElementDraws draw(seed, step);
        for (std::size_t i = 0; i < count; ++i) {
            static_cast<T*>(to)[i] =
                rules::round_stochastically<T>(static_cast<const float*>(from)[i], draw(element + i));
        }
    }
    template <class Gather, class Master>
    static void begin_codes(const void* masters, std::size_t count, void* codes, float* scales, std::size_t begin,
                            std::size_t end) {
        const shardkit::detail::BeginCodes<Gather, Master> each{static_cast<const Master*>(masters), count,
                                                                static_cast<Gather*>(codes), scales};
        for (std::size_t at = begin; at < end; at += shardkit::detail::coded_together) {
            each(at / shardkit::detail::coded_together);
        }
    }
    template <class T>
    static void join(const void* upper, const std::uint16_t* lower, void* to, std::size_t count) {
        for_each_index(count,
                       shardkit::detail::JoinWork<T>{static_cast<const T*>(upper), lower, static_cast<float*>(to)});
    }
    template <class T>
    static void split(const void* from, void* upper, std::uint16_t* lower, std::size_t count) {
        for_each_index(
            count, shardkit::detail::SplitWork<T>{static_cast<const float*>(from), static_cast<T*>(upper), lower});
    }
    /// Gives a device's stream a kernel.
    template <class Kernel>
    static void give(const AnyStream& stream, const Kernel& kernel) {
        shardkit::detail::give_to_device(stream, kernel);
    }
    /// Gives it a work for each index below n, behind `first` unless that is null.
    template <class First, class Work>
    static void give_works(const AnyStream& stream, const First* first, std::uint64_t n, const Work& work) {
        if (first != nullptr) {
            give(stream, engine::RunFirst<First, Work>{*first, n, work});
        } else {
            give(stream, engine::ForEachIndex<Work>{n, work});
        }
    }
    /// Calls update(range) for each range of masters; for none of a step that is skipped. Where codes are gathered,
    /// it begins them too.
    template <class Master, class Gather, class Update>
    static void for_each_range(std::span<const rules::UpdateRange> ranges, bool skipped, std::span<Master> masters,
                               Gather* gathered, float* scales, const Update& update) {
        if constexpr (!shardkit::detail::is_coded<Gather>) {
            if (skipped) { return; }
            for (const rules::UpdateRange& range : ranges) { update(range); }
        } else {
            const auto code = [&](std::size_t begin, std::size_t end) {
                begin_codes<Gather, Master>(masters.data(), masters.size(), gathered, scales, begin, end);
            };
            shardkit::detail::update_and_code(ranges, skipped, masters.size(), update, code);
        }
    }
};

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET

namespace shardkit::host {

/// The Kernels of engines whose memory is the host's: HostKernels that run in the order of a stream;
/// `stream.submit(work)` decides when and where. Pointers that a kernel is given are read when it runs, so that
/// scalars which earlier work of the stream writes (for example a clip coefficient) need no synchronisation.
/// Order:   stream-ordered; copy_in and copy_out return when the host's side is done.
template <class S>
struct EnqueuedKernels {
    /// What has the update of a range, by which an optimizer's rule is a value.
    using Loops = detail::RangeUpdates;

    template <Element T>
    static void fill(const S& stream, std::span<T> to, std::type_identity_t<T> value) {
        stream.submit([=] { shardkit::detail::HostKernels::fill(InlineStream{}, to, value); });
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const S& stream, std::span<const From> from, std::span<To> to,
                        SourceLocation where = SourceLocation::current()) {
        stream.submit([=] { shardkit::detail::HostKernels::convert(InlineStream{}, from, to, where); });
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const S& stream, std::span<const Addend> addend, std::span<Sum> total,
                           SourceLocation where = SourceLocation::current()) {
        stream.submit([=] { shardkit::detail::HostKernels::accumulate(InlineStream{}, addend, total, where); });
    }
    template <FloatingElement Addend, FloatingElement Sum>
    requires(std::same_as<Sum, Arithmetic<Sum>>) static void accumulate_pair(
        const S& stream, std::span<const Addend> addend, std::span<const Sum> other, std::span<Sum> total,
        SourceLocation where = SourceLocation::current()) {
        stream.submit(
            [=] { shardkit::detail::HostKernels::accumulate_pair(InlineStream{}, addend, other, total, where); });
    }

    template <Element T>
    static void pack(const S& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        stream.submit([=] { shardkit::detail::HostKernels::pack(InlineStream{}, table, flat); });
    }
    template <Element T>
    static void unpack(const S& stream, std::span<const engine::TensorPiece<T>> table, std::span<T> flat) {
        stream.submit([=] { shardkit::detail::HostKernels::unpack(InlineStream{}, table, flat); });
    }

    /// Copies from host memory to the engine's memory; copy_out copies back.
    /// @pre both spans have the same size
    template <class T>
    static void copy_in(const S& stream, std::span<const T> from, std::span<T> to) {
        copy_out(stream, from, to);
    }
    template <class T>
    static void copy_out(const S& stream, std::span<const T> from, std::span<T> to) {
        stream.synchronize();
        std::copy(from.begin(), from.end(), to.begin());
    }

    /// Runs work() once, for scalars that depend on scalars. The work is copied, and holds pointers to the engine's
    /// memory.
    template <class Work>
    static void run_once(const S& stream, const Work& work) {
        stream.submit(work);
    }

    /// Runs work(i) for every i below n.
    template <class Work>
    static void for_each_index(const S& stream, std::uint64_t n, const Work& work) {
        stream.submit([=] {
            for (std::uint64_t i = 0; i < n; ++i) { work(i); }
        });
    }

    /// Adds the sum of (*scale * element)^2 over `pieces`, and the finite check, to the NormSum that travels in
    /// `into`.
    template <FloatingElement T>
    static void norm_partial(const S& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange /*positions*/,
                             const double* scale, double* into) {
        stream.submit([=] {
            shardkit::detail::NormSum sum;
            for (const engine::NormPiece<T>& piece : pieces) {
                shardkit::detail::HostKernels::norm_partial(
                    InlineStream{}, std::span(piece.elements, piece.end - piece.begin), *scale, sum);
            }
            sum.add_to(into);
        });
    }

    /// Makes one step of an optimizer over the elements in `ranges`, each with updates[range.update]. Does nothing if
    /// *skip is not 0.
    template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage,
              rules::UpdateOf<Arithmetic<Master>, StateCount> Update>
    static void update(const S& stream, std::span<const rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip,
                       const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans,
                       SourceLocation where = SourceLocation::current()) {
        stream.submit([=] {
            Loops::for_each_range(ranges, *skip != 0, spans.master, spans.gathered.data(), spans.scales.data(),
                                  [&](const rules::UpdateRange& range) {
                                      const Update& its = updates[range.update];
                                      if constexpr (shardkit::detail::is_coded<Gather>) {
                                          Loops::update(range, its, shardkit::detail::without_gathered(spans), where);
                                      } else {
                                          Loops::update(range, its, rules::UpdateSpans(spans), where);
                                      }
                                  });
        });
    }
};

}  // namespace shardkit::host
