// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// The number of elements that pass through host memory at a time between a user's values and an engine's buffers.
/// Where the host reads those buffers, starting a copy costs nothing and the staging memory counts beside the plan's:
/// the number is small.
template <class Engine>
inline constexpr std::size_t staged_elements = host_reads<Engine> ? 1024 : 65536;

/// One whole tensor of a group, read from this rank's part and gathered over tp and ep where it is split over them.
/// Order:   after what `stream` was given. Collective over tp and ep where the tensor is split over them.
template <class Engine, class T>
class WholeTensor {
  public:
    /// `group` and `part` must outlive this object.
    WholeTensor(Context<Engine>& context, const GroupCommunicators<Engine>& over, const GroupGeometry& group,
                std::size_t parameter, std::span<const T> part, typename Engine::Stream stream, SourceLocation where)
        : group_(group), parameter_(parameter), stream_(stream), parts_(part) {
        const auto gather = [&](const typename Engine::Communicator& ranks, const char* text, auto& gathered) {
            if (ranks.size() == 1) { return; }
            gathered = group_buffer<T>(context, group.path, text, parts_.size() * ranks.size());
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
                    Engine::Kernels::copy_out(stream_, elements.subspan(at, count),
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
        List<T> staged(std::min(staged_elements<Engine>, numel));
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
        Engine::Kernels::copy_out(stream_, elements.subspan(at, staged.size()), staged);
        part.for_each_run(at, at + staged.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
            for (std::size_t k = 0; k < run; ++k) { to[whole + k] = static_cast<To>(converted(staged[i - at + k])); }
        });
    }
    const GroupGeometry& group_;
    std::size_t parameter_;
    typename Engine::Stream stream_;
    std::span<const T> parts_;
    typename Engine::template Buffer<T> over_tp_;
    typename Engine::template Buffer<T> over_ep_;
};

}  // namespace shardkit::detail
