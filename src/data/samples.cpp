#include "data/samples.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <numeric>

#include "data/permutation.h"

namespace g2::data {
namespace {

// Rows that may still take a piece while packing: bounds the search, not the result's quality by
// much.
constexpr std::size_t kOpenRows = 64;

}  // namespace

Samples::Samples(std::vector<Document> documents, const SampleOptions& options)
    : documents_(std::move(documents)), options_(options) {
  assert(options_.seq_len > 0);
  counts_.documents = static_cast<std::int64_t>(documents_.size());
  stream_begin_.push_back(0);
  for (const Document& d : documents_) {
    stream_begin_.push_back(stream_begin_.back() + d.file->document_tokens(d.index));
  }
  counts_.tokens = stream_begin_.back();
  if (options_.packing == Packing::kStream) {
    plan_stream();
  } else {
    plan_documents();
  }
}

// A row of T inputs reads T + 1 tokens: its last target is the next row's first input.
void Samples::plan_stream() {
  counts_.samples = std::max<std::int64_t>(counts_.tokens - 1, 0) / options_.seq_len;
  counts_.dropped_tokens = counts_.tokens - counts_.samples * options_.seq_len;
}

void Samples::plan_documents() {
  struct Row {
    std::int64_t used = 0;
    std::vector<Piece> pieces;
  };
  std::vector<Row> rows;
  std::deque<std::size_t> open;
  for (std::size_t d = 0; d < documents_.size(); ++d) {
    const std::int64_t inputs =
        stream_begin_[d + 1] - stream_begin_[d] - 1;  // the last token is a target only
    if (inputs > options_.seq_len) ++counts_.cut_documents;
    for (std::int64_t begin = 0; begin < inputs; begin += options_.seq_len) {
      const Piece piece{
          static_cast<std::int64_t>(d), begin, std::min(options_.seq_len, inputs - begin)};
      auto fits = std::find_if(open.begin(), open.end(), [&](std::size_t r) {
        return rows[r].used + piece.inputs <= options_.seq_len;
      });
      if (fits == open.end()) {
        rows.emplace_back();
        open.push_back(rows.size() - 1);
        if (open.size() > kOpenRows) open.pop_front();
        fits = open.end() - 1;
      }
      const std::size_t r = *fits;
      rows[r].used += piece.inputs;
      rows[r].pieces.push_back(piece);
      if (rows[r].used == options_.seq_len) open.erase(fits);
    }
  }
  row_begin_.push_back(0);
  for (const Row& row : rows) {
    pieces_.insert(pieces_.end(), row.pieces.begin(), row.pieces.end());
    row_begin_.push_back(static_cast<std::int64_t>(pieces_.size()));
    counts_.padding_tokens += options_.seq_len - row.used;
  }
  counts_.samples = static_cast<std::int64_t>(rows.size());
}

void Samples::begin_batch(std::int64_t rows, std::int64_t seq_len, Batch& batch) {
  batch.rows = rows;
  batch.seq_len = seq_len;
  batch.ids.clear();
  batch.targets.clear();
  batch.positions.clear();
  batch.lo.clear();
  batch.samples.clear();
}

void Samples::fill(std::int64_t cursor, std::int64_t rows, Batch& batch) const {
  begin_batch(rows, options_.seq_len, batch);
  for (std::int64_t i = cursor; i < cursor + rows; ++i) {
    const std::int64_t place = i % size();
    append(options_.shuffle ? permuted(place, size(), options_.seed, i / size()) : place, batch);
  }
  batch.valid_targets = std::count_if(
      batch.targets.begin(), batch.targets.end(), [](std::int32_t t) { return t != kIgnored; });
}

void Samples::fill_in_order(std::int64_t first, std::int64_t rows, Batch& batch) const {
  assert(first + rows <= size());
  begin_batch(rows, options_.seq_len, batch);
  for (std::int64_t sample = first; sample < first + rows; ++sample) append(sample, batch);
  batch.valid_targets = std::count_if(
      batch.targets.begin(), batch.targets.end(), [](std::int32_t t) { return t != kIgnored; });
}

void Samples::append(std::int64_t sample, Batch& batch) const {
  batch.samples.push_back(sample);
  if (options_.packing == Packing::kStream) {
    append_stream(sample, batch);
  } else {
    append_packed(sample, batch);
  }
}

// Tokens [begin, begin + ids.size()) of the concatenated documents, and where documents start.
void Samples::read_stream(std::int64_t begin,
                          std::vector<std::int32_t>& ids,
                          std::vector<bool>& starts) const {
  auto document =
      static_cast<std::size_t>(std::upper_bound(stream_begin_.begin(), stream_begin_.end(), begin) -
                               stream_begin_.begin() - 1);
  for (std::size_t done = 0; done < ids.size(); ++document) {
    const Document& d = documents_[document];
    const std::int64_t offset = begin + static_cast<std::int64_t>(done) - stream_begin_[document];
    const std::int64_t left = d.file->document_tokens(d.index) - offset;
    const std::size_t take = std::min(ids.size() - done, static_cast<std::size_t>(left));
    d.file->read(d.file->document_begin(d.index) + offset, {ids.data() + done, take});
    if (offset == 0 && take > 0) starts[done] = true;
    done += take;
  }
}

void Samples::append_stream(std::int64_t sample, Batch& batch) const {
  const std::int64_t t = options_.seq_len;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(t + 1));
  std::vector<bool> starts(ids.size());
  read_stream(sample * t, ids, starts);
  const auto row_begin = static_cast<std::int32_t>(batch.ids.size());
  for (std::int64_t i = 0; i < t; ++i) {
    batch.ids.push_back(ids[i]);
    batch.targets.push_back(starts[i + 1] ? kIgnored
                                          : ids[i + 1]);  // nothing predicts a new document
    batch.positions.push_back(static_cast<std::int32_t>(i));
    batch.lo.push_back(row_begin);
  }
}

void Samples::append_packed(std::int64_t sample, Batch& batch) const {
  std::int64_t used = 0;
  for (std::int64_t p = row_begin_[sample]; p < row_begin_[sample + 1]; ++p) {
    const Piece& piece = pieces_[p];
    const Document& d = documents_[piece.document];
    std::vector<std::int32_t> ids(static_cast<std::size_t>(piece.inputs + 1));
    d.file->read(d.file->document_begin(d.index) + piece.begin, ids);
    const auto begin = static_cast<std::int32_t>(batch.ids.size());
    for (std::int64_t i = 0; i < piece.inputs; ++i) {
      batch.ids.push_back(ids[i]);
      batch.targets.push_back(ids[i + 1]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.lo.push_back(begin);
    }
    used += piece.inputs;
  }
  append_padding(options_.seq_len - used, batch);
}

void Samples::append_padding(std::int64_t count, Batch& batch) const {
  const auto begin = static_cast<std::int32_t>(batch.ids.size());
  for (std::int64_t i = 0; i < count; ++i) {
    batch.ids.push_back(options_.pad_id);
    batch.targets.push_back(kIgnored);
    batch.positions.push_back(static_cast<std::int32_t>(i));
    batch.lo.push_back(begin);
  }
}

}  // namespace g2::data
