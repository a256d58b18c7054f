"""Pictures of stored records: pure functions from blocks to drawings, and drawings as SVG or PNG."""
