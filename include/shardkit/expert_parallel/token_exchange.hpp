// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/verbs/all_to_all.hpp>

namespace shardkit::ep SHARDKIT_BUILD {

/// Returns the communicator over the ranks that share experts with this one: for TokenExchange, and for kernels of
/// others that exchange tokens (DeepEP, NCCL's). Collective over the mesh on first use, then cached.
inline Communicator ranks(Rank& rank, SourceLocation where = SourceLocation::current()) {
    const AxisGrid& mesh = rank.grid();
    return rank.communicator(mesh.split_experts(mesh.extent(Dp::name), where), Axes<Ep>{}, where);
}

/// How many rows go from each rank to each expert, as one rank sees it.
class Routes {
  public:
    /// @pre sent has a number for each expert; received one for each rank and, in it, each expert of this rank
    Routes(std::vector<std::uint64_t> sent, std::vector<std::uint64_t> received, std::size_t ranks)
        : sent_(ranks), received_(ranks), experts_(received.size() / ranks), begins_(received.size() + 1) {
        for (std::size_t e = 0; e < sent.size(); ++e) { sent_[e / experts_] += sent[e]; }
        for (std::size_t i = 0; i < received.size(); ++i) {
            received_[i / experts_] += received[i];
            begins_[i + 1] = begins_[i] + received[i];
        }
        for (const std::size_t rows : sent_) { rows_sent_ += rows; }
    }

    /// Returns the number of rows that this rank sends, and that it receives.
    std::size_t rows_sent() const noexcept { return rows_sent_; }
    std::size_t rows_received() const noexcept { return begins_.back(); }
    /// Returns the number of ranks that share the experts, and of experts on each.
    std::size_t sources() const noexcept { return sent_.size(); }
    std::size_t experts() const noexcept { return experts_; }
    /// Returns the received rows of one of this rank's experts that come from one rank. Rows lie source by source,
    /// and of each source expert by expert.
    IndexRange received(std::size_t expert, std::size_t source) const noexcept {
        const std::size_t at = source * experts_ + expert;
        return {begins_[at], begins_[at + 1]};
    }
    /// Returns the rows for each rank, and from each.
    std::span<const std::size_t> sent_to() const noexcept { return sent_; }
    std::span<const std::size_t> received_from() const noexcept { return received_; }

  private:
    std::vector<std::size_t> sent_;
    std::vector<std::size_t> received_;
    std::size_t experts_;
    std::vector<std::size_t> begins_;
    std::size_t rows_sent_ = 0;
};

/// Sends rows of tokens to the ranks of their experts and brings what the experts make of them back, over an
/// all-to-all. The backward pass of `dispatch` is `combine`, and that of `combine` is `dispatch`.
///     const auto routes = exchange.route(assignment.rows());
///     exchange.dispatch(routes, rows, received);   // then the experts
///     exchange.combine(routes, outputs, back);
class TokenExchange {
  public:
    /// Returns the memory that an exchange takes of a rank.
    static std::size_t bytes(std::size_t experts, const engine::Traits& engine = {}) noexcept {
        return 2 * engine.buffer_bytes(experts * sizeof(std::uint64_t));
    }

    /// Makes an exchange over `shared`, the ranks that share the experts: ep::ranks(rank), or others' of yours.
    /// @throws std::invalid_argument when they do not divide the number of experts
    TokenExchange(Rank& rank, Communicator shared, std::size_t experts,
                  SourceLocation where = SourceLocation::current())
        : rank_(&rank), ranks_(std::move(shared)), experts_(experts) {
        if (experts == 0 || experts % ranks_.size() != 0) {
            throw_invalid_argument(where, "ep::TokenExchange: ", experts, " experts over ", ranks_.size(),
                                   " ranks of ", ranks_.axes(), ", expected a number that ", ranks_.size(),
                                   " divides");
        }
        sent_ = rank.buffer<std::uint64_t>(experts);
        received_ = rank.buffer<std::uint64_t>(experts);
    }

    const Communicator& ranks() const noexcept { return ranks_; }

    /// Tells each rank how many rows of this rank go to each of its experts. A number may be 0, as may all.
    /// Order:   collective over the ranks that share the experts; the host waits.
    /// Cost:    8 bytes for each expert
    /// @throws  std::invalid_argument unless there is a number for each expert; CommError when the engine fails
    Routes route(std::span<const std::size_t> rows, SourceLocation where = SourceLocation::current()) {
        require_experts(rows.size(), where);
        std::vector<std::uint64_t> mine(rows.begin(), rows.end());
        if (ranks_.size() > 1) {
            host::AnyKernels::copy_in(rank_->compute_stream(), std::span<const std::uint64_t>(mine), sent_.span());
        }
        return route_of(std::move(mine), sent_.span(), where);
    }
    /// As route, with numbers that kernels have counted: they lie in the engine's memory.
    Routes route_counted(std::span<const std::uint64_t> rows, SourceLocation where = SourceLocation::current()) {
        require_experts(rows.size(), where);
        std::vector<std::uint64_t> mine(experts_);
        host::AnyKernels::copy_out(rank_->compute_stream(), rows, std::span<std::uint64_t>(mine));
        return route_of(std::move(mine), rows, where);
    }
    /// Returns the routes where every rank sends `capacity` rows to each expert, rows of padding among them. No rank
    /// communicates or waits, so that a captured graph may hold what uses them; every rank gives the same number.
    Routes route_all(std::size_t capacity) const {
        std::vector<std::uint64_t> all(experts_, capacity);
        return {all, all, ranks_.size()};
    }

    /// Sends `rows`, ordered by their experts, to the ranks of these.
    /// Shapes:  rows [rows_sent, width]; received [rows_received, width], ordered as Routes::received says. All of it
    ///          is written.
    /// Order:   on the compute stream. Collective over the ranks that share the experts, also for a rank that sends
    ///          and receives nothing; `width` is the same on all.
    /// Cost:    the bytes of the rows that come from other ranks
    /// @throws  std::invalid_argument when the sizes disagree with the routes; CommError when the engine fails
    template <Element T>
    void dispatch(const Routes& routes, std::size_t width, std::span<const T> rows, std::span<T> received,
                  SourceLocation where = SourceLocation::current()) const {
        exchange("dispatch", width, rows, routes.sent_to(), received, routes.received_from(), where);
    }
    /// Brings a row for each row that was dispatched back: the experts' outputs or, in the backward pass of
    /// `dispatch`, the gradients at their inputs.
    /// Shapes:  rows [rows_received, width]; back [rows_sent, width], in the order of what was dispatched
    /// Order, cost and errors: as dispatch
    template <Element T>
    void combine(const Routes& routes, std::size_t width, std::span<const T> rows, std::span<T> back,
                 SourceLocation where = SourceLocation::current()) const {
        exchange("combine", width, rows, routes.received_from(), back, routes.sent_to(), where);
    }

  private:
    void require_experts(std::size_t given, SourceLocation where) const {
        if (given == experts_) { return; }
        throw_invalid_argument(where, "ep::TokenExchange: numbers of rows for ", given, " experts, expected ",
                               experts_);
    }
    /// `there`: the same numbers in the engine's memory.
    Routes route_of(std::vector<std::uint64_t> mine, std::span<const std::uint64_t> there, SourceLocation where) {
        if (ranks_.size() == 1) { return {mine, mine, 1}; }
        const auto stream = rank_->compute_stream();
        all_to_all(ranks_, there, received_.span(), stream, where);
        std::vector<std::uint64_t> theirs(experts_);
        host::AnyKernels::copy_out(stream, std::span<const std::uint64_t>(received_.span()),
                                   std::span<std::uint64_t>(theirs));
        return {std::move(mine), std::move(theirs), ranks_.size()};
    }
    /// `sends`, `receives`: the rows for each rank, and from each.
    template <class T>
    void exchange(std::string_view verb, std::size_t width, std::span<const T> from,
                  std::span<const std::size_t> sends, std::span<T> to, std::span<const std::size_t> receives,
                  SourceLocation where) const {
        std::vector<std::size_t> sent(sends.size()), received(sends.size());
        std::size_t rows_sent = 0, rows_received = 0;
        for (std::size_t r = 0; r < sends.size(); ++r) {
            sent[r] = sends[r] * width;
            received[r] = receives[r] * width;
            rows_sent += sends[r];
            rows_received += receives[r];
        }
        require_argument(
            sends.size() == ranks_.size() && from.size() == rows_sent * width && to.size() == rows_received * width,
            where, "ep::TokenExchange: ", verb, " of ", from.size(), " elements into ", to.size(), ", expected ",
            rows_sent, " and ", rows_received, " rows of ", width);
        all_to_all_uneven(ranks_, from, std::span<const std::size_t>(sent), to,
                          std::span<const std::size_t>(received), rank_->compute_stream(), where);
    }

    Rank* rank_;
    Communicator ranks_;
    std::size_t experts_;
    HostBuffer<std::uint64_t> sent_, received_;  // numbers of rows
};

}  // namespace shardkit::ep SHARDKIT_BUILD
