// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/verbs/all_gather.hpp>

namespace shardkit::detail {

/// The number of elements that pass through host memory at a time between a user's values and an engine's buffers.
/// Where the host reads those buffers, starting a copy costs nothing and the staging memory counts beside the plan's:
/// the number is small.
inline std::size_t staged_elements(const Stream& stream) noexcept { return host_reads(stream) ? 1024 : 65536; }

/// Gathers a group's values into `full` from `part`, this rank's shard or its piece of that: a piece across groups
/// first, and then the shard within its group. Collective over the data ranks.
template <class T>
void gather_whole(const GroupCommunicators& comms, const GroupGeometry& group, std::span<const T> part,
                  std::span<T> full, Stream stream, engine::CallSite site) {
    if (group.pieces() == 1 || part.size() == group.own.size()) {
        return all_gather(comms.shards, part, full, stream, site);
    }
    all_gather(comms.replicas, part, full.subspan(group.own.begin, group.own.size()), stream, site);
    all_gather_in_place(comms.shards, full, stream, site);
}

/// Returns a group's values: `part`, this rank's, if that is all of them, and otherwise what is gathered of it into a
/// buffer for it, as gather_whole.
template <class T>
std::span<const T> whole_group(Rank& rank, const GroupCommunicators& comms, const GroupGeometry& group,
                               std::span<const T> part, HostBuffer<T>& gathered, std::string_view what, Stream stream,
                               engine::CallSite site) {
    if (part.size() == group.buffer_numel) { return part; }
    gathered = group_buffer<T>(rank, group.path, what, group.buffer_numel);
    gather_whole(comms, group, part, gathered.span(), stream, site);
    return gathered.span();
}

/// One whole tensor of a group, read from this rank's part and gathered over tp and ep where it is split over them.
/// Order:   after what `stream` was given. Collective over tp and ep where the tensor is split over them.
template <class T>
class WholeTensor {
  public:
    /// `group` and `part` must outlive this object.
    WholeTensor(Rank& rank, const GroupCommunicators& over, const GroupGeometry& group, std::size_t parameter,
                std::span<const T> part, Stream stream, SourceLocation where)
        : group_(group), parameter_(parameter), stream_(stream), parts_(part) {
        const auto gather = [&](const Communicator& ranks, const char* text, auto& gathered) {
            if (ranks.size() == 1) { return; }
            gathered = group_buffer<T>(rank, group.path, text, parts_.size() * ranks.size());
            const std::string what = concat("'", group.path, "' parameter '", group.parameters[parameter].name, "'");
            all_gather(ranks, parts_, gathered.span(), stream, {where, subject_of(ranks, what)});
            parts_ = gathered.span();
        };
        if (group.parameters[parameter].split_over_tp()) { gather(over.tp, "a tensor gathered over tp", over_tp_); }
        if (group.parameters[parameter].experts) { gather(over.ep, "a tensor gathered over ep", over_ep_); }
    }

    /// Copies the tensor in row-major order. Long runs are copied directly, without staging. The host waits for the
    /// stream.
    void copy(std::span<T> to) const {
        for_each_part([&](std::span<const T> elements, const TensorPart& part, List<T>& staged) {
            for (std::size_t at = 0; at < elements.size();) {
                std::size_t count = std::min(part.run_at(at), elements.size() - at);
                if (count >= staged.size()) {
                    host::AnyKernels::copy_out(stream_, elements.subspan(at, count),
                                               to.subspan(part.whole_index(at), count));
                } else {
                    count = std::min(staged.size(), elements.size() - at);
                    copy_staged(elements, part, at, std::span<T>(staged).first(count), to,
                                [](T value) { return value; });
                }
                at += count;
            }
        });
    }
    /// Copies the tensor in another type.
    template <class To>
    void copy(std::span<To> to) const {
        convert(to, [](T value) { return static_cast<Arithmetic<To>>(static_cast<Arithmetic<T>>(value)); });
    }
    /// Writes to[i] = converted(element i).
    template <class To, class Convert>
    void convert(std::span<To> to, const Convert& converted) const {
        for_each_part([&](std::span<const T> elements, const TensorPart& part, List<T>& staged) {
            for (std::size_t at = 0; at < elements.size(); at += staged.size()) {
                const std::size_t count = std::min(staged.size(), elements.size() - at);
                copy_staged(elements, part, at, std::span<T>(staged).first(count), to, converted);
            }
        });
    }

  private:
    /// Calls f(elements, their part of the tensor, staging memory) for each part.
    template <class F>
    void for_each_part(const F& f) const {
        const std::size_t numel = group_.parameters[parameter_].range.size();
        List<T> staged(std::min(staged_elements(stream_), numel));
        const PlacedParameter& p = group_.parameters[parameter_];
        const std::size_t of_stack = p.split_over_tp() ? group_.tp : 1;
        for (std::size_t number = 0; number * numel < parts_.size(); ++number) {
            f(parts_.subspan(number * numel, numel), p.part.of(number % of_stack, number / of_stack), staged);
        }
    }
    /// Copies staged.size() elements of the part, from index `at` on.
    template <class To, class Convert>
    void copy_staged(std::span<const T> elements, const TensorPart& part, std::size_t at, std::span<T> staged,
                     std::span<To> to, const Convert& converted) const {
        host::AnyKernels::copy_out(stream_, elements.subspan(at, staged.size()), staged);
        part.for_each_run(at, at + staged.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
            for (std::size_t k = 0; k < run; ++k) { to[whole + k] = static_cast<To>(converted(staged[i - at + k])); }
        });
    }
    const GroupGeometry& group_;
    std::size_t parameter_;
    Stream stream_;
    std::span<const T> parts_;
    HostBuffer<T> over_tp_;
    HostBuffer<T> over_ep_;
};

/// In which form a buffer has a parameter's values between steps.
enum class WrittenAs : std::uint8_t { masters, gathered, upper_halves, lower_halves };

/// Calls f(span of the elements, how a number is rounded to one), for a group with this Precision.
template <class Precision, class F>
void in_form(WrittenAs how, const StoredElements& target, const F& f) {
    using Gather = typename Precision::Gather;
    using Master = typename Precision::Master;
    if constexpr (Precision::has_master) {
        if (how == WrittenAs::masters) { return f(std::span<Master>(target), RoundToNearest<Master>{}); }
    }
    if constexpr (can_split_master<Precision>) {
        if (how == WrittenAs::upper_halves) { return f(std::span<Gather>(target), UpperHalf{}); }
        if (how == WrittenAs::lower_halves) {
            return f(std::span(static_cast<std::uint16_t*>(target.data()), target.size()), LowerHalf{});
        }
    }
    if constexpr (!Precision::gathers_codes) { f(std::span<Gather>(target), RoundToNearest<Master>{}); }
}

/// Writes those of a parameter's values that lie in `target`, which begins with element `origin` of the flat order,
/// rounded by `Rounding`. `digest`, unless null, takes the written values.
template <class Rounding, class T>
void write_rounded(const Rank& rank, const PlacedParameter& written, std::span<T> target, std::size_t origin,
                   const TensorValueSource& values, ValuesDigest* digest) {
    const IndexRange range = intersect(written.range, {origin, origin + target.size()});
    const T* const array = values.array<T>();
    const bool as_it_is = array != nullptr && Rounding::template keeps<T>;
    constexpr std::size_t read_at_once = 128;
    double read[read_at_once];
    List<T> staged(std::min(staged_elements(rank.compute_stream()), range.size()));
    const auto add = [&](std::span<const T> written_now, std::size_t first) {
        if constexpr (FloatingElement<T>) {
            if (digest != nullptr) { digest->add(first, written_now); }
        }
    };
    for (std::size_t at = range.begin; at < range.end;) {
        const std::size_t first = at - written.range.begin;
        const std::size_t run = std::min(written.part.run_at(first), range.end - at);
        if (as_it_is && run >= staged.size()) {
            const std::span<const T> whole_run(array + written.part.whole_index(first), run);
            host::AnyKernels::copy_in(rank.compute_stream(), whole_run, target.subspan(at - origin, run));
            add(whole_run, first);
            at += run;
            continue;
        }
        const std::size_t count = std::min(staged.size(), range.end - at);
        for (std::size_t i = 0; i < count; i += read_at_once) {
            const std::span<double> some(read, std::min(read_at_once, count - i));
            values.read(written.part, first + i, some);
            for (std::size_t k = 0; k < some.size(); ++k) { staged[i + k] = Rounding::template of<T>(some[k]); }
        }
        const std::span<const T> written_now = staged.span().first(count);
        host::AnyKernels::copy_in(rank.compute_stream(), written_now, target.subspan(at - origin, count));
        add(written_now, first);
        at += count;
    }
}

}  // namespace shardkit::detail
