// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/context_parallel/attention_shape.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/verbs/send_receive.hpp>

namespace shardkit::cp SHARDKIT_BUILD {

/// Gives every rank's block of keys and values to every rank of cp, one after the other. While a rank works on one
/// block, the next one is sent, from each rank to the next. A rank holds two blocks besides its own.
/// Memory:  2 blocks, and 4 more from the first backward pass on.
/// Cost:    forward size - 1 blocks sent and received per rank; backward these and size blocks of gradients.
/// Gradients are numbers of Arithmetic<A>: fp32 for bf16.
/// Source:  Liu et al., Ring Attention, arXiv 2310.01889
template <class A>
class RingExchange {
    using Sum = Arithmetic<A>;

  public:
    /// Returns the bytes in an engine's memory, after a backward pass, of an exchange of blocks of `block` elements
    /// over `size` ranks.
    static constexpr std::size_t bytes(std::size_t block, std::size_t size,
                                       const engine::Traits& engine = {}) noexcept {
        return size == 1 ? 0
                         : 2 * engine.buffer_bytes(block * sizeof(A), true) +
                               4 * engine.buffer_bytes(block * sizeof(Sum), true);
    }

    /// Allocates the memory of an exchange. `block` is the largest number of elements in a block.
    RingExchange(Rank& rank, const Communicator& cp, std::size_t block) : rank_(rank), cp_(cp), block_(block) {
        if (cp.size() > 1) { travelling_ = pair<A>(); }
    }

    /// Calls use(source, block) for every rank's block, this rank's first; all ranks' blocks have the same size. The
    /// work that `use` gives to the compute stream runs after the block has arrived.
    /// Order:   on the rank's compute and communication streams; later work on the compute stream may write `own`.
    /// Collective over cp.
    /// @throws  std::invalid_argument when `own` is larger than the blocks it was made for; CommError when the engine
    /// fails
    template <class Use>
    void each(std::span<const A> own, const Use& use, SourceLocation where = SourceLocation::current()) {
        detail::check_block("RingExchange", own.size(), block_, where);
        const auto communication = rank_.communication_stream();
        communication.wait(rank_.compute_stream().record());
        std::span<const A> current = own;
        for (std::size_t step = 0; step < cp_.size(); ++step) {
            const auto next = pass_on(current, step, where);
            settled([&] { use(source(step), current); });
            current = arrived(next, step);
        }
    }

    /// Calls use(source, block, gradients of the block) likewise. The gradients are zero when `use` is called. What
    /// the ranks add to them is summed on the block's way, and added to its owner's `d_own`.
    template <class Use>
    void each_with_gradients(std::span<const A> own, std::span<Sum> d_own, const Use& use,
                             SourceLocation where = SourceLocation::current()) {
        using Kernels = host::AnyKernels;
        const auto compute = rank_.compute_stream();
        const auto communication = rank_.communication_stream();
        detail::check_block("RingExchange", own.size(), block_, where);
        if (cp_.size() == 1) {
            use(0, own, d_own);
            return;
        }
        if (addends_[0].size() == 0) {
            addends_ = pair<Sum>();
            sums_ = pair<Sum>();
        }
        communication.wait(compute.record());
        std::span<const A> current = own;
        for (std::size_t step = 0; step < cp_.size(); ++step) {
            const auto next = pass_on(current, step, where);
            const std::span<Sum> addend =
                addends_[step % 2].span().first(own.size());  // sent two steps ago; the last step waited for it
            Kernels::fill(compute, addend, Sum{0});
            settled([&] { use(source(step), current, addend); });
            // The sums of the ranks before this one arrive while this rank works.
            if (step > 0) {
                compute.wait(sent_);
                Kernels::accumulate(compute, sum(step - 1, own.size()), addend);
            }
            communication.wait(compute.record());
            send_receive(cp_, std::span<const Sum>(addend), behind(), sums_[step % 2].span().first(own.size()),
                         before(), communication, where);
            sent_ = communication.record();
            current = arrived(next, step);
        }
        compute.wait(sent_);
        Kernels::accumulate(compute, sum(cp_.size() - 1, own.size()), d_own);
    }

  private:
    /// Runs `work`. If it throws, waits until no block is being sent or received, so that the memory may be freed.
    template <class Work>
    void settled(const Work& work) {
        try {
            work();
        } catch (...) {
            rank_.communication_stream().settle();
            throw;
        }
    }

    template <class T>
    using Pair = std::array<detail::EngineTable<T>, 2>;

    template <class T>
    Pair<T> pair() const {
        using Table = detail::EngineTable<T>;
        return {Table::zeroed(rank_, block_), Table::zeroed(rank_, block_)};
    }
    std::span<const Sum> sum(std::size_t step, std::size_t size) const { return sums_[step % 2].span().first(size); }
    std::size_t behind() const { return (cp_.rank() + 1) % cp_.size(); }
    std::size_t before() const { return (cp_.rank() + cp_.size() - 1) % cp_.size(); }
    std::size_t source(std::size_t step) const { return (cp_.rank() + cp_.size() - step) % cp_.size(); }

    /// Sends `current` to the next rank and receives the next block, if there is one.
    std::span<const A> pass_on(std::span<const A> current, std::size_t step, SourceLocation where) {
        if (step + 1 == cp_.size()) { return {}; }
        const std::span<A> next = travelling_[step % 2].span().first(current.size());
        const auto communication = rank_.communication_stream();
        communication.wait(used_[step % 2]);
        send_receive(cp_, current, behind(), next, before(), communication, where);
        received_ = communication.record();
        return next;
    }
    /// Returns the block that arrived, after the work on step's block was given to the compute stream.
    std::span<const A> arrived(std::span<const A> next, std::size_t step) {
        const auto compute = rank_.compute_stream();
        if (step > 0) { used_[(step - 1) % 2] = compute.record(); }
        if (!next.empty()) { compute.wait(received_); }
        return next;
    }

    Rank& rank_;
    Communicator cp_;
    std::size_t block_;
    Pair<A> travelling_;
    Pair<Sum> addends_;
    Pair<Sum> sums_;
    std::array<Event, 2> used_{};
    Event sent_{};
    Event received_{};
};

}  // namespace shardkit::cp SHARDKIT_BUILD
