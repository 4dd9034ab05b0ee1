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
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/memory/memory_copies.hpp>

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
    /// `tensor` is in `file` with elements of type `stored`. @param copies  writes memory that the host cannot
    TensorReader(const PlannedTensor& tensor, const SavedGroup& group, const OpenFile& file,
                 safetensors::DType stored, Place place, engine::MemoryCopies* copies, Rest rest)
        : as_stored_(with_size(tensor, stored)),
          values_(*group.values[tensor.values]),
          file_(file),
          same_(same_elements(stored, tensor.type)),
          convert_(stored, tensor.type),
          pieces_(as_stored_, group),
          place_(place),
          copies_(copies),
          rest_(rest) {}

    /// Reads the tensor; `copies` may still be running. @returns this rank's part of the tensor's digest, 0 unless
    /// asked for
    std::uint32_t read(bool digests) const {
        std::uint32_t digest = 0;
        if (pieces_.scattered()) {
            scan(digests, digest);
        } else {
            List<IndexRange> own;
            if (digests) {
                pieces_.for_each_piece([&](IndexRange piece, std::size_t) { own.push_back(piece); });
            }
            pieces_.for_each_run(values_.loaded,
                                 [&](IndexRange run, std::size_t flat) { read_run(run, flat, own, digest); });
        }
        return digest;
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
    /// Returns the address of an element, or null where the host cannot write it.
    std::byte* host(std::size_t flat) const noexcept { return values_.on_host ? values_.memory(flat) : nullptr; }
    std::size_t file_size() const noexcept { return size_of(as_stored_.type); }

    /// Converts elements. @throws FileError where a finite element would become infinite
    void convert(const std::byte* from, std::byte* to, std::size_t count) const {
        if (convert_(from, to, count) < count) {
            throw FileError(file_.path(), out_of_range(as_stored_.name, values_.type), SourceLocation::current());
        }
    }

    /// Reads a run of elements that are contiguous in the file and in memory.
    void read_run(IndexRange run, std::size_t flat, const List<IndexRange>& own, std::uint32_t& digest) const {
        std::vector<std::byte> staged;
        for_each_chunk({flat, flat + run.size() / file_size()}, [&](std::size_t done, std::span<std::byte> memory) {
            const std::size_t elements = memory.size() / size_of(values_.type);
            const std::uint64_t at = run.begin + done * file_size();
            staged.resize(same_ ? 0 : elements * file_size());
            const std::span<std::byte> bytes = same_ ? memory : std::span<std::byte>(staged);
            file_.read(at, bytes);
            add(digest, own, at, bytes);
            if (!same_) { convert(staged.data(), memory.data(), elements); }
        });
    }
    /// Calls fill(number of elements before it, memory) for parts of the elements `flat`. The memory is their own, or
    /// a slot that is copied to it afterwards.
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
                slot = (slot + 1) % engine::MemoryCopies::slots;
            }
            at += count;
        }
    }
    /// Reads the pages that contain elements of this rank, and picks these out.
    void scan(bool digests, std::uint32_t& digest) const {
        const IndexRange held = intersect(pieces_.parameter().range, values_.loaded);
        const std::size_t to_size = size_of(values_.type);
        std::byte* const own_memory = held.empty() ? nullptr : host(held.begin);
        std::vector<std::byte> beside(own_memory == nullptr ? held.size() * to_size : 0);
        std::byte* const memory = own_memory == nullptr ? beside.data() : own_memory;
        if (rest_ == Rest::zero) {
            std::fill_n(memory, held.size() * to_size, std::byte{});
        } else if (own_memory == nullptr && !held.empty() && as_stored_.bytes < parameter_bytes()) {
            copy_out(held, beside);
        }
        const std::size_t first_held = held.begin - pieces_.parameter().range.begin;
        const IndexRange local{first_held, first_held + held.size()};
        const IndexRange all{as_stored_.begin, as_stored_.begin + as_stored_.bytes};
        List<IndexRange> own;
        if (digests) { own.push_back(piece_of(all, place_.rank, place_.ranks)); }
        std::vector<std::byte> bytes;
        std::vector<std::byte> converted;
        const std::size_t numel = static_cast<std::size_t>(as_stored_.bytes) / file_size();
        for (std::size_t at = 0; at < numel; at += chunk_bytes / file_size()) {
            const IndexRange chunk{at, std::min(at + chunk_bytes / file_size(), numel)};
            for (const IndexRange& places : wanted(chunk, local, own)) {
                const std::uint64_t begin = all.begin + places.begin * file_size();
                bytes.resize(places.size() * file_size());
                file_.read(begin, bytes);
                add(digest, own, begin, bytes);
                converted.resize(places.size() * to_size);
                convert(bytes.data(), converted.data(), places.size());
                with_word(to_size, [&](auto element) {
                    as_stored_.order.for_each(places.begin, places.size(), [&](std::size_t place, std::size_t whole) {
                        // For an element of another rank's part, the index is past the end.
                        const std::size_t index = pieces_.part().index_of(whole) - first_held;
                        if (index < held.size()) {
                            std::memcpy(memory + index * sizeof element,
                                        converted.data() + (place - places.begin) * sizeof element, sizeof element);
                        }
                    });
                });
            }
        }
        if (own_memory == nullptr) {
            for_each_chunk(held, [&](std::size_t done, std::span<std::byte> to) {
                std::memcpy(to.data(), beside.data() + done * to_size, to.size());
            });
        }
    }
    /// Returns the bytes of the whole parameter with the file's element size.
    std::uint64_t parameter_bytes() const noexcept { return pieces_.parameter().shape.numel() * file_size(); }
    /// Copies the elements `flat` out of a device's memory.
    void copy_out(IndexRange flat, std::span<std::byte> to) const {
        const std::size_t size = size_of(values_.type);
        const std::size_t most = copies_->capacity() / size;
        for (std::size_t slot = 0; slot < engine::MemoryCopies::slots; ++slot) { copies_->finish(slot); }
        for (std::size_t at = 0; at < flat.size(); at += most) {
            const std::span<std::byte> part = to.subspan(at * size, std::min(most, flat.size() - at) * size);
            copies_->begin_read(0, {values_.memory(flat.begin + at), part.size()});
            std::memcpy(part.data(), copies_->finish(0).data(), part.size());
        }
    }
    /// Returns the places of a chunk to read: those of the elements `held` of this rank's part and of the bytes
    /// `own`, and gaps between them that are shorter than a page.
    List<IndexRange> wanted(IndexRange chunk, IndexRange held, const List<IndexRange>& own) const {
        List<IndexRange> places;
        const auto want = [&](std::size_t begin, std::size_t end) {
            if (begin >= end) { return; }
            if (!places.empty() && begin < places.back().end + page_bytes / file_size()) {
                places.back().end = std::max(places.back().end, end);
            } else {
                places.push_back({begin, end});
            }
        };
        const TensorPart& part = pieces_.part();
        const bool in_one = part.block() == part.numel();  // then they are one run of the whole tensor
        const std::size_t first = held.empty() || !in_one ? 0 : part.whole_index(held.begin);
        const std::size_t stride = as_stored_.order.stride();
        // The number of steps from `element` to the first element at or behind `bound`.
        const auto steps = [&](std::size_t element, std::size_t bound) {
            return element >= bound ? 0 : (bound - element - 1) / stride + 1;
        };
        as_stored_.order.for_each_run(chunk.begin, chunk.size(),
                                      [&](std::size_t place, std::size_t element, std::size_t run) {
                                          if (in_one) {
                                              want(place + std::min(run, steps(element, first)),
                                                   place + std::min(run, steps(element, first + held.size())));
                                              return;
                                          }
                                          for (std::size_t k = 0; k < run; ++k) {
                                              if (part.index_of(element + k * stride) - held.begin < held.size()) {
                                                  want(place + k, place + k + 1);
                                              }
                                          }
                                      });
        for (const IndexRange& piece : own) {
            const auto place_of = [&](std::size_t byte) { return (byte - as_stored_.begin) / file_size(); };
            const IndexRange both = intersect(chunk, {place_of(piece.begin), place_of(piece.end + file_size() - 1)});
            if (!both.empty()) { places.push_back(both); }
        }
        std::stable_sort(places.begin(), places.end(),
                         [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; });
        const List<IndexRange> sorted = std::exchange(places, {});
        for (const IndexRange& each : sorted) { want(each.begin, each.end); }
        return places;
    }
    /// Adds to the digest those of the bytes, which begin at `begin` in the file, that are in pieces of this rank;
    /// `own` is sorted.
    void add(std::uint32_t& digest, const List<IndexRange>& own, std::uint64_t begin,
             std::span<const std::byte> bytes) const {
        const std::uint64_t end = begin + bytes.size();
        const auto* at =
            std::lower_bound(own.begin(), own.end(), begin,
                             [](const IndexRange& each, std::uint64_t first) { return each.end <= first; });
        for (; at != own.end() && end > at->begin; ++at) {  // nvcc 13.0 parses `begin <` as a template
            const IndexRange common = intersect(*at, {begin, end});
            if (common.empty()) { continue; }
            const auto counted = bytes.subspan(common.begin - begin, common.size());
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
    engine::MemoryCopies* copies_;
    Rest rest_;
};

}  // namespace shardkit::detail
