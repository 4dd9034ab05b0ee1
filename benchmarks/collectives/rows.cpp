// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>
#include <cstdint>

#include "elements.hpp"

namespace benchmarks {

namespace {

std::vector<std::size_t> piece_sizes(const Options& options, std::size_t pieces, std::size_t element_bytes) {
    std::vector<std::size_t> sizes;
    for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes = options.size_after(bytes)) {
        const std::size_t piece = std::max<std::size_t>(1, bytes / (pieces * element_bytes));
        if (sizes.empty() || sizes.back() != piece) { sizes.push_back(piece); }
    }
    return sizes;
}

}  // namespace

std::vector<PlannedRow> plan_rows(const Options& options, std::size_t group_size) {
    std::vector<PlannedRow> rows;
    for (const VerbKind verb : options.verbs) {
        const VerbFacts facts = VerbFacts::of(verb, group_size);
        PlannedRow planned{{}, facts, 0};
        Row& row = planned.row;
        row.verb = verb;
        row.reduces = facts.reduces;
        row.has_root = facts.has_root;
        row.moves_data = facts.moves_data;
        row.bus_factor = facts.bus_factor;
        if (!facts.moves_data) {
            rows.push_back(planned);
            continue;
        }
        for (const DataType type : options.types) {
            for (const shardkit::ReduceOp op : options.ops) {
                row.type = type;
                row.op = op;
                for (const std::size_t piece : piece_sizes(options, facts.pieces, bytes_of(type))) {
                    planned.piece = row.count = piece;
                    row.bytes = facts.pieces * piece * bytes_of(type);
                    rows.push_back(planned);
                }
                if (!facts.reduces) { break; }
            }
        }
    }
    return rows;
}

}  // namespace benchmarks
