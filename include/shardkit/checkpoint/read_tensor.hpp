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
#include <shardkit/checkpoint/memory_copies.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/tensor_pieces.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>

namespace shardkit::detail {

/// Brings what this rank holds of a tensor from a file into its memory, and digests the pieces that it would write.
class TensorReader {
  public:
    struct Place {
        std::size_t rank = 0;
        std::size_t ranks = 1;
    };
    /// `tensor` lies in `file` with elements of type `stored`. @param copies  write memory that the host cannot
    TensorReader(const PlannedTensor& tensor, const SavedGroup& group, const OpenFile& file,
                 safetensors::DType stored, Place place, MemoryCopies* copies)
        : as_stored_(with_size(tensor, stored)),
          values_(*group.values[tensor.values]),
          file_(file),
          same_(same_elements(stored, tensor.type)),
          convert_(stored, tensor.type),
          pieces_(as_stored_, group),
          place_(place),
          copies_(copies) {}

    /// Order: `copies` may still be under way. @return this rank's part of the tensor's digest; 0 unless wanted
    std::uint32_t read(bool digests) const {
        std::uint32_t digest = 0;
        if (pieces_.scattered()) {
            scan(digests, digest);
        } else {
            std::vector<FileRange> own;
            if (digests) {
                pieces_.for_each_piece([&](FileRange piece, std::size_t) { own.push_back(piece); });
            }
            pieces_.for_each_run(values_.loaded,
                                 [&](FileRange run, std::size_t flat) { read_run(run, flat, own, digest); });
        }
        return digest;
    }

  private:
    /// The size of an element is that of the file's, where its bytes are counted.
    static PlannedTensor with_size(PlannedTensor tensor, safetensors::DType stored) {
        tensor.type = stored == safetensors::DType::f64   ? ElementType::fp64
                      : stored == safetensors::DType::f32 ? ElementType::fp32
                                                          : ElementType::bf16;
        return tensor;
    }
    /// Null where the host cannot write it.
    std::byte* host(std::size_t flat) const noexcept { return values_.on_host ? values_.memory(flat) : nullptr; }
    std::size_t file_size() const noexcept { return size_of(as_stored_.type); }

    /// Elements that follow each other in the file and in memory.
    void read_run(FileRange run, std::size_t flat, const std::vector<FileRange>& own, std::uint32_t& digest) const {
        std::vector<std::byte> staged;
        for_each_chunk({flat, flat + static_cast<std::size_t>(run.size()) / file_size()},
                       [&](std::size_t done, std::span<std::byte> memory) {
                           const std::size_t elements = memory.size() / size_of(values_.type);
                           const std::uint64_t at = run.begin + done * file_size();
                           staged.resize(same_ ? 0 : elements * file_size());
                           const std::span<std::byte> bytes = same_ ? memory : std::span<std::byte>(staged);
                           file_.read(at, bytes);
                           add(digest, own, at, bytes);
                           if (!same_) { convert_(staged.data(), memory.data(), elements); }
                       });
    }
    /// fill(elements before it, memory) for parts of the elements `flat`: their own memory, or what is copied there
    /// then.
    template <class Fill>
    void for_each_chunk(IndexRange flat, const Fill& fill) const {
        const std::size_t size = size_of(values_.type);
        std::size_t most = chunk_bytes / file_size();
        if (!values_.on_host) { most = std::min(most, copies_->capacity() / size); }
        std::size_t slot = 0;
        for (std::size_t at = flat.begin; at < flat.end;) {
            const std::size_t count = std::min(most, flat.end - at);
            const std::span<std::byte> memory(values_.memory(at), count * size);
            if (values_.on_host) {
                fill(at - flat.begin, memory);
            } else {
                fill(at - flat.begin, copies_->finish(slot).first(memory.size()));
                copies_->begin_write(slot, memory);
                slot = (slot + 1) % MemoryCopies::slots;
            }
            at += count;
        }
    }
    /// Everything is read, and what this rank holds picked out of it.
    void scan(bool digests, std::uint32_t& digest) const {
        const IndexRange held = intersect(pieces_.parameter().range, values_.loaded);
        const std::size_t to_size = size_of(values_.type);
        std::byte* const own_memory = held.empty() ? nullptr : host(held.begin);
        std::vector<std::byte> beside(own_memory == nullptr ? held.size() * to_size : 0);
        std::byte* const memory = own_memory == nullptr ? beside.data() : own_memory;
        const std::size_t first_held = held.begin - pieces_.parameter().range.begin;
        const TensorPart& part = pieces_.part();
        const FileRange all{as_stored_.begin, as_stored_.begin + as_stored_.bytes};
        std::vector<FileRange> own;
        if (digests) { own.push_back(piece_of(all, place_.rank, place_.ranks)); }
        std::vector<std::byte> chunk;
        std::vector<std::byte> converted;
        for (std::uint64_t at = all.begin; at < all.end; at += chunk.size()) {
            chunk.resize(static_cast<std::size_t>(std::min<std::uint64_t>(chunk_bytes, all.end - at)));
            file_.read(at, chunk);
            add(digest, own, at, chunk);
            const std::size_t count = chunk.size() / file_size();
            converted.resize(count * to_size);
            convert_(chunk.data(), converted.data(), count);
            const std::size_t first = (at - all.begin) / file_size();
            with_element_size(to_size, [&](auto element) {
                as_stored_.order.for_each(first, count, [&](std::size_t place, std::size_t whole) {
                    // Of another rank's part, the index is past the end.
                    const std::size_t index = part.index_of(whole) - first_held;
                    if (index < held.size()) {
                        std::memcpy(memory + index * sizeof element,
                                    converted.data() + (place - first) * sizeof element, sizeof element);
                    }
                });
            });
        }
        if (own_memory == nullptr) {
            for_each_chunk(held, [&](std::size_t done, std::span<std::byte> to) {
                std::memcpy(to.data(), beside.data() + done * to_size, to.size());
            });
        }
    }
    /// Counts those of the bytes, which stand at `begin` of the file, that lie in pieces of this rank; sorted.
    void add(std::uint32_t& digest, const std::vector<FileRange>& own, std::uint64_t begin,
             std::span<const std::byte> bytes) const {
        const std::uint64_t end = begin + bytes.size();
        auto at = std::lower_bound(own.begin(), own.end(), begin,
                                   [](const FileRange& each, std::uint64_t first) { return each.end <= first; });
        for (; at != own.end() && end > at->begin; ++at) {  // nvcc 13.0 takes `begin <` for a template
            const FileRange common{std::max(at->begin, begin), std::min(at->end, end)};
            if (common.empty()) { continue; }
            const auto counted = bytes.subspan(static_cast<std::size_t>(common.begin - begin),
                                               static_cast<std::size_t>(common.size()));
            digest ^= crc32c::behind(crc32c::extend(0, counted), as_stored_.begin + as_stored_.bytes - common.end);
        }
    }

    PlannedTensor as_stored_;
    const SavedValues& values_;
    const OpenFile& file_;
    bool same_;
    ElementConverter convert_;
    TensorPieces pieces_;
    Place place_;
    MemoryCopies* copies_;
};

}  // namespace shardkit::detail
