// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit {

namespace detail {
/// Makes the verb below of elements whose type is a value.
inline void all_to_all(const Communicator& comm, ElementType type, host::ConstMemory sent, host::Memory received,
                       const Stream& stream, SourceLocation where) {
    require_argument(sent.count == received.count && sent.count % comm.size() == 0, where, "all_to_all over ",
                     comm.axes(), ": sends ", sent.count, " and receives ", received.count,
                     " elements, expected the same multiple of ", comm.size(), " ranks");
    const Call call = call_of({type, type}, Verb::all_to_all, sent.count, sent.bytes(), where);
    make_call(comm, call, sent.at, received.at, [=, &stream, &call](const host::Verbs& engine) {
        return engine.all_to_all(sent, received, stream, call);
    });
}
}  // namespace detail

/// Sends piece r of `sent` to rank r and receives rank r's piece for this rank as piece r of `received`.
/// Shapes:  sent [size * k], received [size * k]. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`.
/// Cost:    (size - 1) / size of the bytes received per rank.
/// @throws  std::invalid_argument when the sizes differ or size does not divide them; CommError on failure
template <class Sent, class Received>
void all_to_all(const Communicator& comm, Sent&& sent, Received&& received, const Stream& stream = {},
                SourceLocation where = SourceLocation::current()) {
    static_assert(detail::SameElements<Sent, Received>::are_given);
    detail::all_to_all(comm, detail::type_in<Sent>, detail::verb_input(std::forward<Sent>(sent)),
                       detail::verb_output(std::forward<Received>(received)), stream, where);
}

}  // namespace shardkit

namespace shardkit {

namespace detail {

/// Returns the counts of a verb, which it may read as long as its input.
template <Contiguous V>
constexpr std::span<const std::size_t> verb_counts(V&& counts) {
    static_assert(std::is_same_v<ElementIn<V>, std::size_t>, "counts are numbers of type std::size_t");
    return verb_input(std::forward<V>(counts));
}

/// Checks that there is a count for each rank, and that all together are the elements of the buffer.
inline void check_counts(const Communicator& comm, std::string_view what, std::span<const std::size_t> counts,
                         std::string_view buffer, std::size_t elements, SourceLocation where) {
    require_argument(counts.size() == comm.size(), where, "all_to_all_uneven over ", comm.axes(), ": ", counts.size(),
                     " ", what, ", expected one for each of ", comm.size(), " ranks");
    std::size_t sum = 0;
    for (const std::size_t count : counts) { sum += std::min(count, std::numeric_limits<std::size_t>::max() - sum); }
    require_argument(sum == elements, where, "all_to_all_uneven over ", comm.axes(), ": ", what, " add up to ", sum,
                     ", expected the ", elements, " elements of ", buffer);
}

/// Returns the bytes that a rank receives from its peers.
inline std::uint64_t received_from_peers(const Communicator& comm, std::span<const std::size_t> counts,
                                         std::size_t element) {
    std::uint64_t all = 0;
    for (std::size_t q = 0; q < counts.size(); ++q) { all += bytes_with_peer(comm, q, counts[q] * element); }
    return all;
}

/// Makes the verb below of elements whose type is a value.
inline void all_to_all_uneven(const Communicator& comm, ElementType type, host::ConstMemory sent,
                              std::span<const std::size_t> sends, host::Memory received,
                              std::span<const std::size_t> receives, const Stream& stream,
                              const engine::CallSite& site) {
    check_counts(comm, "send_counts", sends, "sent", sent.count, site.where);
    check_counts(comm, "receive_counts", receives, "received", received.count, site.where);
    const std::size_t rank = comm.rank();
    require_argument(sends[rank] == receives[rank], site.where, "all_to_all_uneven over ", comm.axes(), ": rank ",
                     rank, " sends itself ", sends[rank], " and receives ", receives[rank], " elements of its own");
    // No count is the same on all ranks.
    const Call call = call_of({type, type}, Verb::all_to_all_uneven, 0, received.bytes(), site);
    make_call(comm, call, sent.at, received.at, [=, &comm, &stream, &call](const host::Verbs& engine) {
        engine.all_to_all_uneven(sent, sends, received, receives, stream, call);
        return received_from_peers(comm, receives, received.size);
    });
}

}  // namespace detail

/// Sends to each rank a piece of `sent` and receives one from each into `received`; the pieces may differ in size.
/// Shapes:  send_counts [size] and receive_counts [size], in elements; 0 is legal. The pieces lie one behind the
/// other
///          in the order of the ranks: `sent` has as many elements as send_counts add up to, `received` as many as
///          receive_counts. The two must not overlap.
/// Order:   stream-ordered; the counts, like the elements, must outlive the call. Collective over `comm`.
/// Cost:    a rank receives the bytes of its pieces from other ranks. The rank with most of them sets the time.
/// @pre     rank a's send_counts[b] is rank b's receive_counts[a]
/// @throws  std::invalid_argument when the counts do not fit the buffers, or this rank sends itself something else
///          than it receives; CommError when the engine fails, and on every rank when two ranks' counts differ, if
///          the engine compares calls
/// Source:  MPI_Alltoallv with packed displacements
template <class Sent, class SendCounts, class Received, class ReceiveCounts>
void all_to_all_uneven(const Communicator& comm, Sent&& sent, SendCounts&& send_counts, Received&& received,
                       ReceiveCounts&& receive_counts, const Stream& stream = {},
                       engine::CallSite site = SourceLocation::current()) {
    static_assert(detail::SameElements<Sent, Received>::are_given);
    detail::all_to_all_uneven(comm, detail::type_in<Sent>, detail::verb_input(std::forward<Sent>(sent)),
                              detail::verb_counts(std::forward<SendCounts>(send_counts)),
                              detail::verb_output(std::forward<Received>(received)),
                              detail::verb_counts(std::forward<ReceiveCounts>(receive_counts)), stream, site);
}

}  // namespace shardkit
