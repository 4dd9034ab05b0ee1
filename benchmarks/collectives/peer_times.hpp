// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"
#include "row.hpp"

namespace benchmarks {

/// What a peer took for a collective: a sum where it reduces, out of place unless it has no such form.
struct PeerTime {
    std::string peer;
    VerbKind verb{};
    DataType type{};
    std::uint64_t bytes = 0;  ///< as in Row
    double seconds = 0;

    /// Whether both are the same collective of the same size.
    bool belongs_to(const Row& row) const noexcept {
        return verb == row.verb && type == row.type && bytes == row.bytes &&
               (!row.reduces || row.op == shardkit::ReduceOp::sum);
    }
};

/// The peers' times in options.peers, a file that `benchmarks/run peers collectives --json` wrote, of what is
/// measured with these options; none without a file.
/// @throws InputError that names the file when it cannot be read, is no such file or has nothing of the kind, and
/// when
///         several groups communicate at once, as no peer does
std::vector<PeerTime> read_peer_times(const Options& options);

}  // namespace benchmarks
