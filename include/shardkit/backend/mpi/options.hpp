// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::mpi {

/// How a World adds.
enum class Sums : std::uint8_t {
    /// Every rank receives the addends for its piece, in their own type, and adds them in rank order: the bits of the
    /// threads engine with any MPI. Within a host, ranks read each other's memory.
    exchanged,
    /// MPI's own reductions, in the order that the implementation chooses. Addends of 16 bits are widened to fp32 and
    /// sent so. Maxima and minima are made by exchange. Fewer messages on many ranks, and other bits.
    by_mpi
};

/// How a World communicates. The same on every rank.
struct Options {
    Sums sums = Sums::exchanged;

    /// Lets threads of the engine make all MPI calls, so that collectives run while the rank computes. Needs
    /// MPI_THREAD_SERIALIZED, and MPI_THREAD_MULTIPLE if the rank makes MPI calls of its own meanwhile. Each call is
    /// handed over to a thread, which takes microseconds: worth it if a rank has more than one processor.
    bool overlap = false;

    /// With overlap, gives reductions a thread, communicators, places in shared memory and staging memory of their
    /// own, so that reductions and gathers do not wait for each other. Off: all communication has one order.
    bool separate_reductions = true;

    /// Lets ranks of one host read each other's buffers, if the host allows it; no messages are sent between them
    /// then. Off: all communication uses messages.
    bool shared_memory = true;

    /// Simulates hosts, for tests: this many consecutive ranks of the world count as a host. 0: the real hosts.
    std::size_t ranks_per_host = 0;

    /// When the ranks of a collective compare verb, type, count, operation, root and subject before any data moves;
    /// the error for calls that disagree names them on every rank. each_call costs one all-reduce of 24 bytes per
    /// collective, and nothing within a host. each_step costs one in all, when an optimizer steps or the program asks
    /// for it; until then, ranks with different calls may get wrong bytes, or wait until the timeout. Where ranks of
    /// several hosts share memory within each host, each_step does not compare calls with a subject, such as those of
    /// containers: ranks remember from the first time whether their peers see the memory, and memory that is no
    /// longer seen is an error. off never compares where memory is not shared, and each call where it is.
    CompareCalls compare_calls = CompareCalls::each_call;

    /// The longest time that a rank waits for its peers to make the same call, to make the World and to finish it.
    /// Rank::deadline sets another time for a phase, in place of this one and the next.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);
    /// The longest time that a rank waits for its peers to finish a call that all of its host have entered.
    std::chrono::milliseconds finish_timeout = std::chrono::minutes(10);
    /// Called once for each call in which a rank waits for half of such a time, with a text that says where; in the
    /// thread that makes the rank's calls. It must not throw.
    std::function<void(const std::string& text)> on_late{};
    /// Where the rank's last calls are written, "PREFIX-rank-0.json" and so on: when a rank of the job fails or a
    /// time above has passed, and on SIGUSR1, unless the program handles it. Where all ranks see these files, which a
    /// thread of each rank looks for, the error says where they are. Empty: nowhere.
    std::string record{};

    /// The memory in which a rank receives its peers' addends, for each thread that makes MPI calls; at least 1 KiB
    /// for each rank.
    std::size_t staging_bytes = std::size_t{4} << 20U;

    /// The largest number of elements in one MPI message. MPI counts with an int, so longer spans are sent in pieces.
    std::size_t message_elements = std::size_t{1} << 30U;
};

}  // namespace shardkit::mpi
