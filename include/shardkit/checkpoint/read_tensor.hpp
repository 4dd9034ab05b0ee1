// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/stored_runs.hpp>
#include <shardkit/checkpoint/value_memory.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Reads the elements of a tensor that this rank holds from a file into its memory, and digests the pieces that this
/// rank would write.
class TensorReader {
  public:
    struct Place {
        std::size_t rank = 0;
        std::size_t ranks = 1;
    };
    /// What happens to a parameter's elements that the file's tensor lacks. If the tensor is one of several of the
    /// parameter, they stay unchanged.
    enum class Rest : std::uint8_t { none, stays, zero };
    /// `tensor` is in `file` with elements of type `stored`. @param memory  writes the values
    TensorReader(const PlannedTensor& tensor, const SavedGroup& group, const OpenFile& file,
                 safetensors::DType stored, Place place, ValueMemory& memory, Rest rest)
        : as_stored_(with_size(tensor, stored)),
          values_(*group.values[tensor.values]),
          file_(file),
          same_(same_elements(stored, tensor.type)),
          convert_(stored, tensor.type),
          pieces_(as_stored_, group),
          held_(intersect(pieces_.parameter().range, values_.loaded)),
          place_(place),
          memory_(memory),
          rest_(rest) {}

    /// Reads the tensor; copies of `memory` may still be running. @returns this rank's part of the tensor's digest, 0
    /// unless asked for
    std::uint32_t read(bool digests) {
        const std::size_t size = size_of(values_.type);
        if (digests && pieces_.scattered()) {
            const IndexRange all{as_stored_.begin, as_stored_.begin + as_stored_.bytes};
            own_.push_back(piece_of(all, place_.rank, place_.ranks));
        } else if (digests) {
            pieces_.for_each_piece([&](IndexRange piece, std::size_t) { own_.push_back(piece); });
        }
        // On a device, elements that do not follow each other are put together first.
        if (pieces_.scattered() && !values_.on_host) {
            beside_.resize(held_.size() * size);
            if (rest_ != Rest::zero && as_stored_.order.numel() < pieces_.parameter().shape.numel()) {
                memory_.finish();
                memory_.read(values_, held_.begin, 1, held_.size(), beside_.data());
            }
        } else if (rest_ == Rest::zero && !held_.empty()) {
            memory_.write(values_, held_.begin, 1, held_.size(),
                          [size](std::size_t, std::size_t n, std::byte* to) { std::memset(to, 0, n * size); });
            memory_.finish();
        }
        const std::size_t numel = as_stored_.order.numel();
        const std::size_t most = chunk_bytes / size_of(as_stored_.type);
        for (std::size_t at = 0; at < numel; at += most) { read({at, std::min(at + most, numel)}); }
        if (!beside_.empty()) {
            memory_.write(values_, held_.begin, 1, held_.size(),
                          [&](std::size_t first, std::size_t n, std::byte* to) {
                              std::memcpy(to, beside_.data() + first * size, n * size);
                          });
        }
        return digest_;
    }

  private:
    /// Returns the tensor with the file's element size, in which its bytes are counted.
    static PlannedTensor with_size(PlannedTensor tensor, safetensors::DType stored) {
        tensor.type = stored == safetensors::DType::f64   ? ElementType::fp64
                      : stored == safetensors::DType::f32 ? ElementType::fp32
                      : stored == safetensors::DType::u8  ? ElementType::uint8
                                                          : ElementType::bf16;
        return tensor;
    }
    /// Converts elements. @throws FileError where a finite element would become infinite
    void convert(const std::byte* from, std::byte* to, std::size_t count) const {
        if (convert_(from, to, count) < count) {
            throw FileError(file_.path(), out_of_range(as_stored_.name, values_.type), SourceLocation::current());
        }
    }
    /// Reads those of the tensor's elements `chunk` that this rank holds, or whose bytes it digests.
    void read(IndexRange chunk) {
        const std::size_t size = size_of(as_stored_.type);
        const std::size_t origin = pieces_.parameter().range.begin;
        List<StoredRun> runs = runs_of(as_stored_.order, pieces_.part(), relative_to(held_, origin), chunk);
        const IndexRange of_chunk{as_stored_.begin + chunk.begin * size, as_stored_.begin + chunk.end * size};
        List<IndexRange> wanted;
        for (StoredRun& run : runs) {
            run.at = as_stored_.begin + run.at * size;
            run.flat += origin;
            wanted.push_back({run.at, run.at + run.count * size});
        }
        for (const IndexRange& piece : own_) {
            if (const IndexRange both = intersect(piece, of_chunk); !both.empty()) { wanted.push_back(both); }
        }
        const StoredRun* run = runs.begin();
        for (const IndexRange& bytes : joined(std::move(wanted))) {
            if (same_ && beside_.empty() && run != runs.end() && run->stride == 1 && run->at == bytes.begin &&
                run->at + run->count * size == bytes.end) {
                memory_.write(values_, run->flat, 1, run->count, [&](std::size_t done, std::size_t n, std::byte* to) {
                    read(bytes.begin + done * size, {to, n * size});
                });
                ++run;
                continue;
            }
            buffer_.resize(bytes.size());
            read(bytes.begin, buffer_);
            for (; run != runs.end() && run->at < bytes.end; ++run) {
                write(*run, buffer_.data() + (run->at - bytes.begin));
            }
        }
    }
    /// Reads bytes of the file, and digests them.
    void read(std::uint64_t begin, std::span<std::byte> bytes) {
        file_.read(begin, bytes);
        const std::uint64_t end = begin + bytes.size();
        const auto* at =
            std::lower_bound(own_.begin(), own_.end(), begin,
                             [](const IndexRange& each, std::uint64_t first) { return each.end <= first; });
        for (; at != own_.end() && end > at->begin; ++at) {  // nvcc 13.0 parses `begin <` as a template
            const IndexRange common = intersect(*at, {begin, end});
            if (common.empty()) { continue; }
            const auto counted = bytes.subspan(common.begin - begin, common.size());
            digest_ ^= crc32c::behind(crc32c::extend(0, counted), as_stored_.begin + as_stored_.bytes - common.end);
        }
    }
    /// Returns ranges of bytes in the order of the file, joined where they overlap, and in a scattered tensor where
    /// less than a page is between them.
    List<IndexRange> joined(List<IndexRange> ranges) const {
        std::sort(ranges.begin(), ranges.end(),
                  [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
        const std::size_t gap = pieces_.scattered() ? page_bytes : 0;
        List<IndexRange> made;
        for (const IndexRange& range : ranges) {
            if (made.empty() || range.begin >= made.back().end + gap) {
                made.push_back(range);
            } else {
                made.back().end = std::max(made.back().end, range.end);
            }
        }
        return made;
    }
    /// Writes the elements of a run, which the file has at `from`.
    void write(const StoredRun& run, const std::byte* from) {
        const std::size_t stored = size_of(as_stored_.type);
        const auto make = [&](std::size_t first, std::size_t n, std::byte* to) {
            convert(from + first * stored, to, n);
        };
        if (beside_.empty()) { return memory_.write(values_, run.flat, run.stride, run.count, make); }
        const std::size_t size = size_of(values_.type);
        ValueMemory::write_strided(beside_.data() + (run.flat - held_.begin) * size, size, run.stride, run.count,
                                   make);
    }

    PlannedTensor as_stored_;
    const SavedValues& values_;
    const OpenFile& file_;
    bool same_;
    ElementConverter convert_;
    TensorPieces pieces_;
    IndexRange held_;  // of the flat buffer
    Place place_;
    ValueMemory& memory_;
    Rest rest_;
    List<IndexRange> own_;           // bytes that this rank digests
    std::uint32_t digest_ = 0;       // of them
    std::vector<std::byte> beside_;  // the elements that this rank holds, where the host cannot write them one by one
    std::vector<std::byte> buffer_;
};

}  // namespace shardkit::detail
