// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/journal.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
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

namespace shardkit::detail SHARDKIT_BUILD {

/// The number of elements that pass through host memory at a time between a user's values and an engine's buffers.
/// Where the host reads those buffers, starting a copy costs nothing and the staging memory counts beside the plan's:
/// the number is small.
inline std::size_t staged_elements(const Stream& stream) noexcept { return host_reads(stream) ? 1024 : 65536; }

/// Writes elements in host memory, times `scale`, as doubles. @pre `elements` are of T
template <FloatingElement T>
void widen(const void* elements, std::size_t count, double scale, double* to) {
    const T* const from = static_cast<const T*>(elements);
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<double>(static_cast<Arithmetic<T>>(from[i])) * scale;
    }
}
using Widen = void (*)(const void* elements, std::size_t count, double scale, double* to);

/// Returns a group's values: `part`, this rank's shard or its piece of that, if it is all of them, and otherwise what
/// is gathered of it into a buffer for it: a piece across groups first, and then the shard within its group.
/// Collective over the data ranks.
inline StoredElements whole_group(Rank& rank, const GroupCommunicators& comms, const GroupGeometry& group,
                                  const StoredElements& part, HostBuffer<std::uint8_t>& gathered,
                                  std::string_view what, Stream stream, engine::CallSite site) {
    if (part.size() == group.buffer_numel) { return part; }
    gathered = group_buffer<std::uint8_t>(rank, group.path, what, group.buffer_numel * size_of(part.type()));
    const StoredElements full(gathered.span(), part.type());
    if (group.pieces() == 1 || part.size() == group.own.size()) {
        all_gather(comms.shards, part.type(), part, full, stream, site);
    } else {
        all_gather(comms.replicas, part.type(), part, full.subspan(group.own.begin, group.own.size()), stream, site);
        all_gather_in_place(comms.shards, part.type(), full, stream, site);
    }
    return full;
}

/// One whole tensor of a group, read from this rank's part and gathered over tp and ep where it is split over them.
/// Order:   after what `stream` was given. Collective over tp and ep where the tensor is split over them.
class WholeTensor {
  public:
    /// `group` and `part` must outlive this object.
    WholeTensor(Rank& rank, const GroupCommunicators& over, const GroupGeometry& group, std::size_t parameter,
                const StoredElements& part, Stream stream, SourceLocation where)
        : group_(group), parameter_(parameter), stream_(stream), parts_(part) {
        const auto gather = [&](const Communicator& ranks, const char* text, HostBuffer<std::uint8_t>& gathered) {
            if (ranks.size() == 1) { return; }
            const ElementType type = parts_.type();
            gathered =
                group_buffer<std::uint8_t>(rank, group.path, text, parts_.size() * ranks.size() * size_of(type));
            const std::string what = concat("'", group.path, "' parameter '", group.parameters[parameter].name, "'");
            const StoredElements all(gathered.span(), type);
            all_gather(ranks, type, parts_, all, stream, {where, subject_of(ranks, what)});
            parts_ = all;
        };
        if (group.parameters[parameter].split_over_tp()) { gather(over.tp, "a tensor gathered over tp", over_tp_); }
        if (group.parameters[parameter].experts) { gather(over.ep, "a tensor gathered over ep", over_ep_); }
    }

    /// Copies the tensor in row-major order as it is. Long runs are copied directly, without staging. The host waits
    /// for the stream.
    void copy(std::byte* to) const {
        const std::size_t size = size_of(parts_.type());
        for_each_part([&](const StoredElements& elements, const TensorPart& part, std::span<std::uint8_t> staged) {
            const std::size_t most = staged.size() / size;
            for (std::size_t at = 0; at < elements.size();) {
                std::size_t count = std::min(part.run_at(at), elements.size() - at);
                if (count >= most) {
                    copy_out(elements.subspan(at, count), to + part.whole_index(at) * size);
                } else {
                    count = std::min(most, elements.size() - at);
                    copy_out(elements.subspan(at, count), staged.data());
                    part.for_each_run(at, at + count, [&](std::size_t i, std::size_t whole, std::size_t run) {
                        std::memcpy(to + whole * size, staged.data() + (i - at) * size, run * size);
                    });
                }
                at += count;
            }
        });
    }
    /// Copies the tensor, times `scale`, as elements of the target's type. `widens`: of the tensor's elements, whose
    /// ElementType does not say which numbers they are where it is one byte.
    void copy(const TensorValueTarget& to, double scale, Widen widens) const {
        for_each_part([&](const StoredElements& elements, const TensorPart& part, std::span<std::uint8_t> staged) {
            const std::size_t most = staged.size() / size_of(parts_.type());
            for (std::size_t at = 0; at < elements.size(); at += most) {
                const std::size_t count = std::min(most, elements.size() - at);
                copy_out(elements.subspan(at, count), staged.data());
                const StoredElements here(staged, parts_.type());
                part.for_each_run(at, at + count, [&](std::size_t i, std::size_t whole, std::size_t run) {
                    double numbers[128];
                    for (std::size_t done = 0; done < run;) {
                        const std::size_t some = std::min(std::size(numbers), run - done);
                        widens(here.subspan(i - at + done, some).data(), some, scale, numbers);
                        to.set(whole + done, {numbers, some});
                        done += some;
                    }
                });
            }
        });
    }

  private:
    /// Calls f(elements, their part of the tensor, staging memory) for each part.
    template <class F>
    void for_each_part(const F& f) const {
        const std::size_t numel = group_.parameters[parameter_].range.size();
        List<std::uint8_t> staged(std::min(staged_elements(stream_), numel) * size_of(parts_.type()));
        const PlacedParameter& p = group_.parameters[parameter_];
        const std::size_t of_stack = p.split_over_tp() ? group_.tp : 1;
        for (std::size_t number = 0; number * numel < parts_.size(); ++number) {
            f(parts_.subspan(number * numel, numel), p.part.of(number % of_stack, number / of_stack),
              std::span<std::uint8_t>(staged));
        }
    }
    void copy_out(const StoredElements& elements, void* to) const {
        const auto from = elements.bytes();
        host::AnyKernels::copy_bytes(stream_, from.data(), to, from.size());
    }

    const GroupGeometry& group_;
    std::size_t parameter_;
    Stream stream_;
    StoredElements parts_;
    HostBuffer<std::uint8_t> over_tp_;
    HostBuffer<std::uint8_t> over_ep_;
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

}  // namespace shardkit::detail SHARDKIT_BUILD
