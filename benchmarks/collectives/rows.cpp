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

std::vector<Row> plan_rows(const Options& options, std::size_t group_size) {
    std::vector<Row> rows;
    for (const VerbKind verb : options.verbs) {
        Row row;
        row.verb = verb;
        row.facts = VerbFacts::of(verb, group_size);
        if (!row.facts.moves_data) {
            rows.push_back(row);
            continue;
        }
        for (const DataType type : options.types) {
            for (const shardkit::ReduceOp op : options.ops) {
                row.type = type;
                row.op = op;
                for (const std::size_t piece : piece_sizes(options, row.facts.pieces, bytes_of(type))) {
                    row.count = piece;
                    row.bytes = row.facts.pieces * piece * bytes_of(type);
                    rows.push_back(row);
                }
                if (!row.facts.reduces) { break; }
            }
        }
    }
    return rows;
}

}  // namespace benchmarks
